package deploy

import (
	"archive/tar"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/apps/image"
)

// layout is the name of the folder with the image's files, which Podman makes the image's name.
func (s *site) layout() string { return "millrace-" + s.o.Name }

func (s *site) blobs() string { return s.folder + "/" + s.layout() + "/blobs/sha256" }

func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// A blob gets its name once its digest has been compared. Whole blobs of a call that died are kept.
const (
	listScript = `umask 022
mkdir -p "$1"
cd "$1"
for f in part/*; do
	[ -f "$f" ] || continue
	if [ "$(sha256sum <"$f" | cut -c1-64)" = "${f##*/}" ]; then mv -f "$f" .; fi
done
rm -rf part
ls`
	copyScript = `umask 022
cd "$1"
shift
mkdir -p part
tar -xof - -C part || { rm -rf part; exit 1; }
for d in "$@"; do
	if [ "$(sha256sum <"part/$d" | cut -c1-64)" != "$d" ]; then
		rm -rf part
		echo "the file $d was damaged on its way: repeat the command" >&2
		exit 1
	fi
	mv -f "part/$d" "$d"
done
rmdir part`
)

// copy copies the files of the image that the host lacks, and returns the number of bytes.
func (s *site) copy(ctx context.Context, r *release) (copied int64, err error) {
	list, err := s.runFor(ctx, unpackTime, listScript, s.blobs())
	if err != nil {
		return 0, err
	}
	there := strings.Fields(list)
	var lacks []image.Blob
	for _, b := range s.o.Image.Blobs() {
		if !slices.Contains(there, hexOf(b.Digest)) {
			lacks = append(lacks, b)
		}
	}
	if len(lacks) == 0 {
		return 0, nil
	}
	return s.send(ctx, lacks)
}

// stallTime is how long a host may read nothing of the files.
var stallTime = commandTime

// send copies files in one session.
func (s *site) send(ctx context.Context, all []image.Blob) (total int64, err error) {
	args := []string{s.blobs()}
	for _, b := range all {
		args, total = append(args, hexOf(b.Digest)), total+b.Size
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	hangs := func() { end(fmt.Errorf("%s: %w", s.name, lateError{stallTime})) }
	stall := time.AfterFunc(stallTime, hangs)
	defer stall.Stop()
	in, out := io.Pipe()
	received := make(chan error, 1)
	s.running.Go(func() {
		_, err := s.streamed(ctx, copyScript, in, args...)
		_ = in.CloseWithError(errUnread)
		received <- err
	})
	packed := s.packBlobs(ctx, out, all, total, stall)
	_ = out.CloseWithError(packed)
	stall.Reset(stallTime + time.Duration(total>>23)*time.Second) // compares digests, 8 MiB a second or more
	err = <-received
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case packed != nil && !errors.Is(packed, errUnread):
		return 0, packed
	}
	return total, err
}

// errUnread ends the packing of files for a host that reads no more.
var errUnread = errors.New("the host reads no more")

// packBlobs writes files as an archive of tar.
func (s *site) packBlobs(ctx context.Context, to io.Writer, all []image.Blob, total int64,
	stall *time.Timer) error {
	w := tar.NewWriter(to)
	n := int64(0)
	for i, b := range all {
		if err := w.WriteHeader(&tar.Header{Name: hexOf(b.Digest), Mode: 0o644, Size: b.Size}); err != nil {
			return err
		}
		in, err := b.Open()
		if err != nil {
			return err
		}
		say := func(n int64) { s.say("copies %d of %d: %d of %d MiB", i+1, len(all), n>>20, total>>20) }
		say(n)
		_, err = io.Copy(w, &sending{ctx: ctx, in: in, n: n, say: say, stall: stall})
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
		n += b.Size
	}
	return w.Close()
}

// sending is a reader that ends with a context.
type sending struct {
	ctx context.Context
	in  io.Reader
	say func(int64)
	n   int64

	stall *time.Timer // ends a copy to a host that reads no more
}

func (r *sending) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	r.stall.Reset(stallTime)
	before := r.n >> 20
	n, err := r.in.Read(p)
	if r.n += int64(n); r.n>>20 != before {
		r.say(r.n)
	}
	return n, err
}

// sweep removes the files that no release uses.
func (s *site) sweep() error {
	var used []string
	for _, r := range s.state.Releases {
		for _, d := range append(slices.Clone(r.Layers), r.Image, r.Config) {
			used = append(used, hexOf(d))
		}
	}
	_, err := s.run(`blobs=$1
layers=$2
shift 2
for f in "$blobs"/* "$layers"/*; do
	[ -e "$f" ] || continue
	name=${f##*/}
	keep=
	for d in "$@"; do
		if [ "$d" = "$name" ]; then keep=1; fi
	done
	if [ -z "$keep" ]; then rm -rf "$f"; fi
done`, append([]string{s.blobs(), s.folder + "/layers"}, used...)...)
	return err
}

// checkMachine refuses an image for other processors than the host's.
func (s *site) checkMachine() error {
	machine, known := map[string]string{"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}[s.machine]
	if known && s.o.Image.Architecture != machine {
		return fmt.Errorf("%s: the image is for %s, the host is %s: run package on a machine like the host", s.name,
			s.o.Image.Architecture, machine)
	}
	return nil
}

// checkPorts refuses addresses at which another program listens.
func (s *site) checkPorts(r *release) error {
	text, err := s.run(`cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || :`)
	if err != nil {
		return err
	}
	for _, a := range []struct{ flag, at string }{{"--http", r.HTTP}, {"--grpc", r.GRPC}} {
		if a.at != "off" && listens(text, a.at) {
			return fmt.Errorf("%s: another program listens at %s there: end the program, or choose another address "+
				"by %s", s.name, a.at, a.flag)
		}
	}
	return nil
}

// listens reports whether a socket in the text of /proc/net/tcp and tcp6 listens at an address.
func listens(text, at string) bool {
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return false
	}
	want, _ := netip.ParseAddr(host) // the zero address for a name: all
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.Fields(line)
		if len(words) < 4 || words[3] != "0A" {
			continue
		}
		address, number, _ := strings.Cut(words[1], ":")
		n, err := strconv.ParseUint(number, 16, 16)
		if err != nil || strconv.FormatUint(n, 10) != port {
			continue
		}
		is := kernelAddress(address)
		if !is.IsValid() || !want.IsValid() || is.IsUnspecified() || want.IsUnspecified() || is == want.Unmap() {
			return true
		}
	}
	return false
}

// kernelAddress reads an address as the kernel prints it: words of 32 bits, each in the order of the processor.
func kernelAddress(text string) netip.Addr {
	b, err := hex.DecodeString(text)
	if err != nil || len(b)%4 != 0 {
		return netip.Addr{}
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

// arguments returns the image's arguments with the addresses of a release.
func arguments(of []string, http, grpc string) ([]string, error) {
	host, port, err := net.SplitHostPort(http)
	if err != nil || port == "" || port == "0" {
		return nil, fmt.Errorf("--http: %q is no address: want HOST:PORT, such as %s", http, DefaultHTTP)
	}
	if _, port, err := net.SplitHostPort(grpc); grpc != "off" && (err != nil || port == "" || port == "0") {
		return nil, fmt.Errorf("--grpc: %q is no address: want HOST:PORT, such as %s, or off", grpc, DefaultGRPC)
	}
	if len(of) == 0 {
		return nil, errors.New("the image has no arguments: make the image by the command package")
	}
	values := map[string]string{"--http": http, "--grpc": grpc}
	if of[0] != "serve" { // a command of another system
		values = map[string]string{"--host": host, "--port": port}
		if host == "" {
			values["--host"] = "0.0.0.0"
		}
	}
	out := slices.Clone(of)
	found := 0
	for i := 1; i < len(out); i++ {
		if v, is := values[out[i-1]]; is {
			out[i] = v
			found++
		}
	}
	if found != len(values) {
		return nil, fmt.Errorf("the image's arguments %q have no addresses: make the image by the command package", of)
	}
	return out, nil
}

// local returns the address at which the host itself reaches a server.
func local(http string) (string, error) {
	host, port, err := net.SplitHostPort(http)
	if err != nil {
		return "", err
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}
