package modelsource

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"millrace/internal/s3test"
)

// An object and a folder of an S3 server are fetched; a changed object is seen; an interrupted fetch goes on; the last
// state is served without the server.
func TestS3(t *testing.T) {
	of := s3test.StartTLS(t, "models", "private")
	client, err := minio.New(strings.TrimPrefix(of.Endpoint, "https://"), &minio.Options{Secure: true,
		Creds: credentials.NewStaticV4(of.AccessKey, of.SecretKey, ""), Transport: transportWith(t, of.CA)})
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, content string) {
		t.Helper()
		if _, err := client.PutObject(t.Context(), "models", key, strings.NewReader(content), int64(len(content)),
			minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	large := strings.Repeat("weights", 100_000)
	put("team/digits/1/model.onnx", "one")
	put("team/large/1/model.onnx", large)
	put("team/digits/config.yaml", "x: y")
	o := Options{Dir: filepath.Join(t.TempDir(), "cache"), S3: S3{Endpoint: of.Endpoint, Region: "us-east-1",
		AccessKey: of.AccessKey, SecretKey: of.SecretKey, CA: of.CA}}
	c := open(t, o)
	if got, _ := text(t, c, "s3://models/team/digits/1/model.onnx"); got != "one" {
		t.Errorf("%q", got)
	}
	if got, _ := text(t, c, "s3://models/team#large/1/model.onnx"); got != large {
		t.Errorf("%d bytes", len(got))
	}
	repository, err := c.Repository(parse(t, c, "s3://models/team"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repository.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found, err := filepath.Glob(repository.Dir + "/*/*"); err != nil || len(found) != 3 {
		t.Errorf("%v, %v", found, err)
	}
	put("team/digits/1/model.onnx", "two")
	if got, _ := text(t, c, "s3://models/team/digits/1/model.onnx"); got != "two" {
		t.Errorf("%q", got)
	}
	refuses(t, c, "s3://models/team/none.onnx", "has no object team/none.onnx")
	refuses(t, c, "s3://absent/none.onnx", "the bucket absent does not exist")

	small := o
	small.Dir, small.MaxSize = filepath.Join(t.TempDir(), "cache"), 1000
	refuses(t, open(t, small), "s3://models/team#large/1/model.onnx", "model_sources.max_size allows more")
	for _, bad := range []struct {
		change func(*S3)
		want   string
	}{
		{func(s *S3) { s.SecretKey = "x" }, "tasks.s3.secret_key"},
		{func(s *S3) { s.AccessKey, s.SecretKey = of.OtherKey, of.OtherSecret }, "may not list and read"},
		{func(s *S3) { s.AccessKey, s.SecretKey = "", "" }, "set the access key"},
		{func(s *S3) { s.CA = "" }, "tasks.s3.ca"},
	} {
		with := o
		with.Dir = filepath.Join(t.TempDir(), "cache")
		bad.change(&with.S3)
		refuses(t, open(t, with), "s3://models/team/digits/1/model.onnx", bad.want)
	}

	u := parse(t, c, "s3://models/team/large/1/model.onnx")
	from := c.origins[u.Scheme].(*s3Origin)
	objects, err := from.list(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(o.Dir, partialDir, keyOf(u, from), "objects", revisionOf(objects)[:16])
	if err := errors.Join(os.MkdirAll(part, 0o700), os.WriteFile(filepath.Join(part, "0"), []byte(large[:300_000]),
		0o600)); err != nil {
		t.Fatal(err)
	}
	received := int64(-1)
	resuming := o
	resuming.Progress = func(p Progress) {
		if received < 0 {
			received = p.Done
		}
	}
	if got, _ := text(t, open(t, resuming), "s3://models/team/large/1/model.onnx"); got != large || received < 300_000 {
		t.Errorf("%d bytes, the first progress is %d", len(got), received)
	}
	of.Stop()
	got, s := text(t, c, "s3://models/team/digits/1/model.onnx")
	if got != "two" || s.Stale == nil || !strings.Contains(s.Stale.Error(), "does not answer as an S3 server") {
		t.Errorf("%q, %v", got, s.Stale)
	}
}

// The revision of a source changes with each of its objects.
func TestRevisionOf(t *testing.T) {
	base := []object{{"k/a", "1", 3, "a"}, {"k/b", "2", 4, "b"}}
	seen := map[string]bool{revisionOf(base): true}
	for _, other := range [][]object{base[:1], {{"k/a", "9", 3, "a"}, base[1]}, {{"k/a", "1", 9, "a"}, base[1]},
		{{"k/c", "1", 3, "c"}, base[1]}} {
		if r := revisionOf(other); seen[r] {
			t.Errorf("%v has the revision of another state", other)
		} else {
			seen[r] = true
		}
	}
	if revisionOf(base) != revisionOf([]object{{"z/a", "1", 3, "a"}, {"z/b", "2", 4, "b"}}) {
		t.Error("the folder of the source changes the revision")
	}
}

// The cache tells servers, users, objects and folders apart.
func TestS3Keys(t *testing.T) {
	seen := map[string]string{}
	for _, o := range []S3{{}, {Endpoint: "https://s3.example.org"}, {Endpoint: "https://s3.example.org",
		AccessKey: "ann"}} {
		c := open(t, Options{S3: o})
		for _, address := range []string{"s3://models/m", "s3://models/m/", "s3://models/m#x.onnx"} {
			u := parse(t, c, address)
			key, what := keyOf(u, c.origins[u.Scheme]), address+" of "+o.AccessKey+" at "+o.Endpoint
			if seen[key] != "" {
				t.Errorf("%s has the key of %s", what, seen[key])
			}
			seen[key] = what
		}
	}
	c := open(t, Options{})
	a, b := parse(t, c, "s3://models/m#x.onnx"), parse(t, c, "s3://models/m#y.onnx")
	if keyOf(a, c.origins[a.Scheme]) != keyOf(b, c.origins[b.Scheme]) {
		t.Error("two files of a folder are two sources")
	}
}
