package build

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"millrace/internal/child"
)

// debian is the form of names of Debian packages, without the - at the end by which apt-get removes a package.
var debian = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*[a-z0-9+]$`)

// system installs missing Debian packages. Only a caller who allows it gets this: installations run as root, outside
// of the sandbox.
func (j *job) system(ctx context.Context) (installed []string, err error) {
	if err := CheckSystem(j.needs.System); err != nil || len(j.needs.System) == 0 {
		return nil, err
	}
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		return nil, fmt.Errorf("build_system_dependencies: the application needs the Debian packages %s, and this is "+
			"no Debian: install their like, and take the names out of the configuration",
			strings.Join(j.needs.System, ", "))
	}
	var missing []string
	for _, name := range j.needs.System {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}", name).Output()
		if err != nil || string(out) != "installed" {
			missing = append(missing, name)
		}
	}
	command := "apt-get install -y --no-install-recommends " + strings.Join(missing, " ")
	switch {
	case len(missing) == 0:
		return nil, nil
	case !j.SystemInstall:
		return nil, fmt.Errorf("build_system_dependencies: the application needs the system packages %s: install "+
			"them by %s, or let build do so by --allow-system-packages", strings.Join(missing, ", "), command)
	case !exist(ctx, missing):
		return nil, fmt.Errorf("build_system_dependencies: apt knows not all packages of %s: correct the names, or "+
			"run apt-get update", strings.Join(missing, ", "))
	case os.Geteuid() != 0:
		return nil, fmt.Errorf("--allow-system-packages: only root may install packages: run sudo %s", command)
	}
	if j.OnSystem != nil {
		j.OnSystem(missing)
	}
	args := append([]string{"install", "-y", "--no-install-recommends", "--"}, missing...)
	c, err := child.Start(ctx, child.Spec{Path: "apt-get", Args: args, Env: []string{"PATH=" + os.Getenv("PATH"),
		"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}, StderrBytes: 4 << 10})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Stop(0) }()
	show := j.line("system packages")
	for scan := bufio.NewScanner(c.Stdout); scan.Scan(); {
		if show != nil {
			show(scan.Text())
		}
	}
	_, _ = io.Copy(io.Discard, c.Stdout) // behind a line that is too long
	if err := c.Wait(); err != nil {
		return nil, fmt.Errorf("build_system_dependencies: %w", err)
	}
	return missing, nil
}

// exist reports whether apt has packages with exactly these names. apt-get would take another name for a pattern.
func exist(ctx context.Context, names []string) bool {
	for _, name := range names {
		out, err := exec.CommandContext(ctx, "apt-cache", "pkgnames", name).Output()
		if err != nil || !slices.Contains(strings.Fields(string(out)), name) {
			return false
		}
	}
	return true
}
