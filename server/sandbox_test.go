package server

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"millrace/stream"
)

// ffmpeg is confined where it can be, unless the setting says otherwise, and the log says where it cannot.
func TestSandboxSetting(t *testing.T) {
	lacks := errors.New("the kernel has no Landlock")
	for _, c := range []struct {
		setting string
		lacks   error
		want    bool
		says    string
	}{
		{"auto", nil, true, ""},
		{"require", nil, true, ""},
		{"off", nil, false, ""},
		{"auto", lacks, false, "is not confined"},
		{"off", lacks, false, ""},
		{"require", lacks, false, ""},
	} {
		var out bytes.Buffer
		got, err := sandbox(c.setting, c.lacks, slog.New(slog.NewTextHandler(&out, nil)))
		if got != c.want || strings.Count(out.String(), "\n") > 1 || !strings.Contains(out.String(), c.says) || (c.says == "") != (out.Len() == 0) {
			t.Errorf("%s, %v: %v, %q", c.setting, c.lacks, got, &out)
		}
		if refused := c.setting == "require" && c.lacks != nil; (err != nil) != refused {
			t.Errorf("%s, %v: %v", c.setting, c.lacks, err)
		} else if refused && (!errors.Is(err, lacks) || !strings.HasPrefix(err.Error(), "sandbox: ") || stream.CodeOf(err) != stream.Unavailable) {
			t.Errorf("%v", err)
		}
	}
}
