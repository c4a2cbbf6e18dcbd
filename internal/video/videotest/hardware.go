package videotest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// Hardware replaces ffmpeg in PATH by a program that behaves like an ffmpeg with VAAPI, for machines without a
// device, but decodes in software with the real ffmpeg. With fail, each decoder with the device ends after 3 frames
// with the message of a failed device. uses returns the number of decoders with the device.
func Hardware(t testing.TB, fail bool) (uses func() int) {
	t.Helper()
	real := testneeds.Program(t, "ffmpeg")
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/bash
args=() hw=
while [ $# -gt 0 ]; do
	case $1 in
	-hwaccels) printf 'Hardware acceleration methods:\nvdpau\nvaapi\n'; exit ;;
	-hwaccel) hw=$2; shift ;;
	-hwaccel_output_format) shift ;;
	hwdownload,format=nv12) hw=; args+=(format=nv12) ;; # the trial
	nut) [ "$hw" ] && [ %[3]t = true ] && args+=(nut -frames:v 3) || args+=(nut) ;;
	*) args+=("$1") ;;
	esac
	shift
done
[ "$hw" ] || exec %[1]s "${args[@]}"
echo "$hw" >> %[2]s/uses
[ %[3]t = true ] || exec %[1]s "${args[@]}"
%[1]s "${args[@]}"
echo '[AVHWDeviceContext @ 0x1] [error] Failed to transfer data to output frame: -5.' >&2
exit 1
`, real, dir, fail)
	testneeds.WriteProgram(t, filepath.Join(dir, "ffmpeg"), script)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		text, _ := os.ReadFile(filepath.Join(dir, "uses"))
		return strings.Count(string(text), "\n")
	}
}
