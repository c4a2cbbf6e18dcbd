package tasks_test

import (
	"strings"
	"testing"
	"time"

	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/server"
	"millrace/tasks"
)

// cancelled waits until a task is cancelled, and checks that the error has these words.
func (r *rig) cancelled(id string, header map[string]string, words string) {
	r.t.Helper()
	t := r.wait(id, header)
	if t.State != tasks.Cancelled || t.Error == nil || !strings.Contains(t.Error.Message, words) {
		r.t.Errorf("the task is %s, error %+v, want cancelled with %q", t.State, t.Error, words)
	}
}

// TestEndedKey: when a key is removed, or loses the role infer or a model, its running and waiting tasks end, and tasks
// of other keys run on. Nobody can queue a task of the removed key again.
func TestEndedKey(t *testing.T) {
	infer := []string{"infer"}
	var all []access.Key
	header := map[string]map[string]string{}
	for _, k := range []struct {
		name  string
		grant access.Grant
	}{
		{"boss", access.Grant{Roles: role.All.Names()}}, {"leaked", access.Grant{Roles: infer}},
		{"role", access.Grant{Roles: infer}}, {"model", access.Grant{Roles: infer}},
		{"other", access.Grant{Roles: infer}},
	} {
		entry, text := access.NewKey(k.name, k.grant)
		all, header[k.name] = append(all, entry), map[string]string{"api_key": text}
	}
	file := t.TempDir() + "/keys.yaml"
	write := func(keys ...access.Key) {
		t.Helper()
		if err := access.WriteKeys(file, keys); err != nil {
			t.Fatal(err)
		}
	}
	write(all...)
	r := start(t, t.TempDir(), func(c *server.Config) {
		c.Auth.Keys = file
		c.Models = append(c.Models, slowEyes)
	})
	zipped := map[string]string{"api_key": header["leaked"]["api_key"], "Content-Type": "application/zip"}
	running := r.submit("model=eyes", zipped, pictures(t, 3000)) // of ten minutes
	for r.task(r.get(running.ID, header["boss"])).State != tasks.Running {
		time.Sleep(5 * time.Millisecond)
	}
	waiting := r.submit("model=none", header["leaked"], jsonBody)
	noRole := r.submit("model=none", header["role"], jsonBody)
	noModel := r.submit("model=none", header["model"], jsonBody)
	stays := r.submit("model=none", header["other"], jsonBody)
	next := r.submit("model=echo", header["other"], jsonBody) // waits for the only slot

	all[2].Roles, all[3].Models = []string{"watch"}, []string{"echo"}
	write(all[0], all[2], all[3], all[4])
	r.cancelled(running.ID, header["boss"], "removed")
	r.cancelled(waiting.ID, header["boss"], "removed")
	r.cancelled(noRole.ID, header["boss"], "role infer")
	r.cancelled(noModel.ID, header["boss"], `"none"`)
	if got := r.wait(next.ID, header["boss"]); got.State != tasks.Finished {
		t.Errorf("the next task of another key: %s, %+v", got.State, got.Error)
	}
	if got := r.task(r.get(stays.ID, header["boss"])); got.State != tasks.Queued {
		t.Errorf("the task of another key: %s, %+v", got.State, got.Error)
	}
	if a, text := r.do("POST", "/v2/tasks/"+waiting.ID+"/retry", header["boss"], nil); a.StatusCode != 409 ||
		!strings.Contains(text, "removed") {
		t.Errorf("a retry: %d %s", a.StatusCode, text)
	}
}

// get returns a task as text.
func (r *rig) get(id string, header map[string]string) string {
	r.t.Helper()
	a, text := r.do("GET", "/v2/tasks/"+id, header, nil)
	if a.StatusCode != 200 {
		r.t.Fatalf("%d %s", a.StatusCode, text)
	}
	return text
}

// TestEndedKeyAtStart: tasks of a key that was removed while the server was down do not run. Without credentials, all
// tasks run.
func TestEndedKeyAtStart(t *testing.T) {
	file, header := withKeys(t, map[string]access.Grant{"gone": {Roles: []string{"infer"}}})
	other, boss := withKeys(t, map[string]access.Grant{"boss": {Roles: role.All.Names()}})
	dir := t.TempDir()
	r := start(t, dir, func(c *server.Config) { c.Auth.Keys, c.Tasks.Consume = file, server.Off })
	first, second := r.submit("model=echo", header["gone"], jsonBody), r.submit("model=none", header["gone"], jsonBody)
	r.end()
	r = start(t, dir, func(c *server.Config) { c.Auth.Keys = other })
	if got := r.wait(first.ID, boss["boss"]); got.Attempt != 0 {
		t.Errorf("the task has run: %+v", got)
	}
	r.cancelled(first.ID, boss["boss"], "removed")
	r.cancelled(second.ID, boss["boss"], "removed")
	r.end()
	r = start(t, dir, nil)
	if a, text := r.do("POST", "/v2/tasks/"+first.ID+"/retry", nil, nil); a.StatusCode != 200 {
		t.Errorf("without credentials: %d %s", a.StatusCode, text)
	}
	if got := r.wait(first.ID, nil); got.State != tasks.Finished {
		t.Errorf("without credentials: %s, %+v", got.State, got.Error)
	}
}
