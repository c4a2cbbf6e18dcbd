package inferenceserver_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/compat/inferenceserver"
	"millrace/internal/podmantest"
	"millrace/internal/testneeds"
	"millrace/server"
)

// The images of the tests. The first image has the name in the example of InferenceServer.
const (
	imageExample = "mathiser/inference_server_models:some_inference_stuff"
	imageModel   = "localhost/model:1"
)

// startPodman starts a Podman service with the images, and returns the socket.
func startPodman(t *testing.T) (socket string) {
	t.Helper()
	podman := podmantest.Start(t)
	program := podmantest.Build(t, "./testdata/copy", "copy")
	for image, entry := range map[string]string{
		"docker.io/" + imageExample: `["/copy", "/input", "/model"]`, imageModel: `["/copy", "/model"]`,
		"localhost/input:1": `["/copy", "/input"]`,
	} {
		podman.Import(image, program, "ENTRYPOINT "+entry)
	}
	return "unix://" + podman.Socket
}

// readme has the requests in the README of InferenceServer (commit 36ffca8aef0fb2612268eef149f38d452e275ec5), with
// another address: a model is posted with a zip file, a task is submitted, and polled until it has ended.
//
// The end-to-end test of InferenceServer (commit 6e5a5ae5b450bb0a141474cdb900f9f9849ad4d1) was run by hand with other
// addresses and images: 5 of 7 tests pass. The other 2 compare a result with an empty list, because they read the sent
// file at its end. With the file read from its beginning, all 7 pass.
const readme = `
import json, sys, time
import requests

address = sys.argv[1]
with open("model.zip", "br") as r:
    res = requests.post(url=address + "/api/tasks/",
                        params={
                            "container_tag": "mathiser/inference_server_models:some_inference_stuff",
                            "human_readable_id": "easy_to_write_must_be_unique",
                            "description": "This model is a test inference model",
                            "model_available": True,
                            "use_gpu": True
                        },
                        files={"zip_file": r})
    assert res.ok, res.content

def run(**files):
    res = requests.post(url=address + "/api/tasks/", params={"human_readable_id": "easy_to_write_must_be_unique"},
                        **files)
    assert res.ok, res.content
    uid = json.loads(res.content)
    while True:
        res = requests.get(url=address + "/api/tasks/" + uid)
        if res.ok:
            return res.content
        assert res.status_code == 551, (res.status_code, res.content)
        time.sleep(0.1)

with open("input.zip", "br") as r:
    with open("output1.zip", "bw") as f:
        f.write(run()) # as in the README, which forgets the file
    with open("output2.zip", "bw") as f:
        f.write(run(files={"zip_file": r}))
`

// with sets the settings of the models.
func with(socket, data string) func(*server.Config, *inferenceserver.Options) {
	return func(c *server.Config, o *inferenceserver.Options) {
		c.Containers.Host, c.Containers.Images = socket, []string{"mathiser/inference_server_models", "localhost/model"}
		o.PublicPostModel, o.Parameters = true, []string{"container.memory=64MiB"}
		if data != "" {
			c.Data = data
		}
	}
}

// TestReadme: the requests in the README of InferenceServer post a model, and run tasks of the model.
func TestReadme(t *testing.T) {
	socket := startPodman(t)
	python := testneeds.Python(t, "requests")
	r := start(t, with(socket, ""))
	dir := t.TempDir()
	for name, text := range map[string]string{"model.zip": zipped(t, "weights/a", "b"), "input.zip": zipped(t, "in")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := exec.Command(python, "-c", readme, r.URL("http"))
	script.Dir = dir
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range map[string]string{"output1.zip": "b=b weights/= weights/a=weights/a",
		"output2.zip": "b=b in=in weights/= weights/a=weights/a"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(unzipped(t, string(b)), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestPostedModels: a posted model stays over a restart, and is deleted with its files. Bad posts leave nothing.
func TestPostedModels(t *testing.T) {
	socket := startPodman(t)
	data := t.TempDir()
	t.Run("post", func(t *testing.T) {
		r := start(t, with(socket, data))
		bad := func(query string, status int, want string, parts ...string) {
			t.Helper()
			kind, body := form(t, parts...)
			if parts == nil {
				kind, body = "", nil
			}
			if got, text := r.do("POST", "/api/models/?"+query, "", kind, body); got != status ||
				!strings.Contains(text, want) {
				t.Errorf("%s: %d %s, want %d %s", query, got, text, status, want)
			}
		}
		bad("container_tag=localhost/other:1&human_readable_id=m", 403, "containers.images")
		bad("container_tag=localhost/model:2&human_readable_id=m", 404, "container_tag")
		bad("container_tag=localhost/model:1&human_readable_id=files", 409, "human_readable_id")
		bad("container_tag=localhost/model:1&human_readable_id=a/b", 400, "human_readable_id")
		bad("container_tag=localhost/model:1,container.memory=1GiB&human_readable_id=m", 400, "container_tag")
		bad("human_readable_id=m", 400, "container_tag: is missing")
		bad("container_tag=localhost/model:1", 400, "human_readable_id: is missing")
		bad("container_tag=localhost/model:1&human_readable_id=m&use_gpu=maybe", 400, "use_gpu")
		bad("container_tag=localhost/model:1&human_readable_id=m&model_available=True", 400, "zip_file: is missing")
		bad("container_tag=localhost/model:1&human_readable_id=m&model_available=False", 400, "model_available",
			"zip_file", zipped(t, "a"))
		bad("container_tag=localhost/model:1&human_readable_id=m&container.memory=1GiB", 400, "container.memory")
		bad("container_tag=localhost/model:1&human_readable_id=m", 400, "zip_file", "zip_file", zipped(t, "../a"))
		if left, _ := os.ReadDir(filepath.Join(data, "inference_server")); len(left) > 0 {
			t.Errorf("files: %v", left)
		}
		if _, text := r.do("GET", "/api/models/", "", "", nil); text != "[]" {
			t.Errorf("models: %s", text)
		}
		kind, body := form(t, "zip_file", zipped(t, "weights"))
		query := "container_tag=localhost/model:1&human_readable_id=m&model_available=true&description=d"
		if status, text := r.do("POST", "/api/models/?"+query, "", kind, body); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		bad("container_tag=localhost/model:1&human_readable_id=m", 409, "human_readable_id")
	})
	t.Run("restart", func(t *testing.T) {
		r := start(t, with(socket, data))
		var all []map[string]any
		_, text := r.do("GET", "/api/models/", "", "", nil)
		if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 ||
			all[0]["human_readable_id"] != "m" || all[0]["container_tag"] != imageModel ||
			all[0]["description"] != "d" || all[0]["model_available"] != true || all[0]["use_gpu"] != false {
			t.Fatalf("%s", text)
		}
		status, text := r.ended(r.submit("human_readable_id=m", "", "zip_file", zipped(t, "a")), "")
		if got := unzipped(t, text); status != 200 || strings.Join(got, " ") != "weights=weights" {
			t.Errorf("%d %v", status, got)
		}
		if status, text := r.do("DELETE", "/api/models/m", "", "", nil); status != http.StatusOK {
			t.Errorf("delete: %d %s", status, text)
		}
		for _, folder := range []string{"inference_server", "containers/models"} {
			if left, err := os.ReadDir(filepath.Join(data, folder)); len(left) > 0 || err != nil {
				t.Errorf("%s: %v %v", folder, left, err)
			}
		}
		if status, _ := r.do("DELETE", "/api/models/m", "", "", nil); status != http.StatusNotFound {
			t.Errorf("deleted twice: %d", status)
		}
		kind, body := form(t, "zip_file", zipped(t, "a"))
		if status, _ := r.do("POST", "/api/tasks/?human_readable_id=m", "", kind, body); status != 550 {
			t.Errorf("a task of a deleted model: %d", status)
		}
	})
}
