package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/podmantest"
	"millrace/server"
	"millrace/tasks"
	"millrace/workers"
)

// TestExample: the README's way from the program to the result, with storage and a socket of the test.
func TestExample(t *testing.T) {
	podman := podmantest.Start(t)
	podman.Import("localhost/count:1", podmantest.Build(t, ".", "count"), `ENTRYPOINT ["/count"]`)
	s, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Data: t.TempDir(),
		Log:        config.Log{Level: "error"},
		Models:     []workers.Config{{Name: "count", Source: "container://localhost/count:1"}},
		Containers: config.Containers{Host: "unix://" + podman.Socket, Images: []string{"localhost/count"}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	t.Cleanup(func() { <-done })
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	call := func(method, path, body string) string {
		q, _ := http.NewRequest(method, s.URL("http")+path, strings.NewReader(body))
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		b, _ := io.ReadAll(a.Body)
		return string(b)
	}
	var task tasks.Task
	_ = json.Unmarshal([]byte(call("POST", "/v2/tasks?model=count&name=a.txt", "two words\n")), &task)
	_ = json.Unmarshal([]byte(call("GET", "/v2/tasks/"+task.ID+"?wait=1m", "")), &task)
	if got := call("GET", "/v2/tasks/"+task.ID+"/result", ""); got != "a.txt: 1 lines, 2 words, 10 bytes\n" {
		t.Errorf("%s: %q, error %+v", task.State, got, task.Error)
	}
}
