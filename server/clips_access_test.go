package server

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A client sees the clips and the files of clips only of streams whose models the client may all use, and changes a
// clip only with the role manage.
func TestAccessToClips(t *testing.T) {
	folder := t.TempDir()
	for stream, models := range map[string]string{"hall": `"echo"`, "gate": `"door-1"`, "both": `"echo","door-1"`} {
		dir := filepath.Join(folder, "2026-11-30", stream)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		id := "101112-" + strings.ToUpper(stream) + "AAAAAA"
		for name, text := range map[string]string{".json": fmt.Sprintf(`{"id":"20261130-%s","stream":%q,"models":[%s],
			"state":"ready","begin":"2026-11-30T10:11:12Z","events":[]}`, id, stream, models), ".mp4": "a video",
			".boxes.jsonl": "{}\n", ".1.jpg": "a picture", ".1.boxes.jpg": "boxes"} {
			if err := os.WriteFile(filepath.Join(dir, id+name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	k := startKeyed(t, func(c *Config) { c.Clips.Folder, c.Clips.MaxAge = folder, 87840*time.Hour })
	ask := func(key, method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+k.Addr("http")+"/v2/clips"+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if key != "" {
			req.Header.Set("api_key", k.keys[key])
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	const hall, gate, both = "/20261130-101112-HALLAAAAAA", "/20261130-101112-GATEAAAAAA", "/20261130-101112-BOTHAAAAAA"
	for _, x := range []struct {
		key    string
		status map[string]int // of each clip
	}{
		{"", map[string]int{hall: 401, gate: 401, both: 401}},
		{"infer", map[string]int{hall: 403, gate: 403, both: 403}},
		{"door", map[string]int{hall: 404, gate: 200, both: 404}},
		{"watch", map[string]int{hall: 200, gate: 200, both: 200}},
	} {
		for clip, want := range x.status {
			for _, file := range []string{"", "/video", "/objects", "/boxes.vtt", "/pictures/1",
				"/pictures/1?boxes=true"} {
				if got, text := ask(x.key, "GET", clip+file, ""); got != want || want != 200 && strings.Contains(text,
					"hall") {
					t.Errorf("%q, %s: %d %s, want %d", x.key, clip+file, got, text, want)
				}
			}
			if got, text := ask(x.key, "GET", "", ""); got == 200 && strings.Contains(text, clip[1:]) != (want == 200) {
				t.Errorf("the list for %q: %s", x.key, text)
			}
		}
	}
	for _, x := range []struct {
		key, clip string
		want      int
	}{{"watch", gate, 403}, {"door", hall, 404}, {"door", both, 404}} {
		if got, text := ask(x.key, "PATCH", x.clip, `{"favourite":true}`); got != x.want {
			t.Errorf("%q makes %s a favourite: %d %s", x.key, x.clip, got, text)
		}
		if got, text := ask(x.key, "DELETE", x.clip, ""); got != x.want {
			t.Errorf("%q removes %s: %d %s", x.key, x.clip, got, text)
		}
	}
	if got, text := ask("door", "DELETE", gate, ""); got != 204 {
		t.Errorf("%d %s", got, text)
	}
}
