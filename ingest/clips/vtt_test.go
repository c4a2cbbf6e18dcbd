package clips

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"millrace/internal/testneeds"
)

// Each object has a cue with its escaped label at its box, until the next line; lines come in any order.
func TestVTT(t *testing.T) {
	const lines = `{"at_us":0,"width":200,"height":100,"objects":[{"box":[20,50,60,90],"track":3,"class":"<b>a & b-->\n\nc","score":0.917}]}
{"at_us":66000,"width":200,"height":100,"objects":[{"box":[-5,-5,500,500],"class":7}]}
{"at_us":33000,"width":200,"height":100,"objects":[{"box":[20,0,60,90]},{"box":[200,100,200,100],"class":"x"}]}
{"at_us":9000000000,"width":200,"height":100,"objects":[{"box":[0,0,1,1],"class":"late"}]}
{"at_us":9000033000,"wid`
	const want = `WEBVTT

00:00:00.080 --> 00:00:00.113 line:50% position:10%,line-left size:90% align:left
&lt;b&gt;a &amp; b--&gt;  c #3 92%

00:00:00.113 --> 00:00:00.146 line:0% position:10%,line-left size:90% align:left
object

00:00:00.113 --> 00:00:00.146 line:100% position:100%,line-left size:0% align:left
x

00:00:00.146 --> 00:00:00.212 line:0% position:0%,line-left size:100% align:left
class 7

02:30:00.080 --> 02:30:00.146 line:0% position:0%,line-left size:100% align:left
late
`
	c := &Clip{OffsetUS: 80_000}
	text, err := io.ReadAll(iotest.OneByteReader(c.VTT(strings.NewReader(lines))))
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
	path := filepath.Join(t.TempDir(), "a.vtt")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testneeds.Program(t, "ffprobe"), "-v", "warning", "-show_entries", "packet=pts_time",
		"-of", "csv=p=0", path).CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || len(got) != 5 || !strings.HasPrefix(got[4], "9000.08") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := io.ReadAll(c.VTT(iotest.ErrReader(os.ErrClosed))); err == nil {
		t.Error("an error of the disk is the end of the file")
	}
}

// Of lines without an end, a bounded number waits.
func TestVTTIsBounded(t *testing.T) {
	line := `{"at_us":0,"width":1,"height":1,"objects":[` + strings.Repeat(`{"box":[0,0,1,1]},`, 2000) +
		`{"box":[0,0,1,1]}]}` + "\n"
	v := (&Clip{}).VTT(strings.NewReader(strings.Repeat(line, 200))).(*vtt)
	n, most := int64(0), 0
	for {
		m, err := v.Read(make([]byte, 64<<10))
		n, most = n+int64(m), max(most, v.bytes)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if most > vttBytes+len(line) || n < 200*2001*80 {
		t.Errorf("%d bytes wait, %d bytes were written", most, n)
	}
}

func FuzzVTT(f *testing.F) {
	f.Add([]byte(`{"at_us":1,"width":2,"height":3,"objects":[{"box":[1e300,-1e300,0,0],"class":"\u2028","score":-1}]}`))
	f.Fuzz(func(t *testing.T, lines []byte) {
		text, err := io.ReadAll((&Clip{}).VTT(strings.NewReader(string(lines))))
		if err != nil {
			t.Fatal(err)
		}
		for _, cue := range strings.Split(strings.TrimSpace(string(text)), "\n\n")[1:] {
			if strings.Count(cue, "\n") != 1 || strings.Count(cue, "-->") != 1 || strings.Contains(cue, "<") {
				t.Errorf("%q", cue)
			}
		}
	})
}
