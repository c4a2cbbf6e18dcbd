package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"millrace/internal/s3test"
	"millrace/stream/coded"
)

// bucketOf returns the prefix a/b of the bucket tasks of a server.
func bucketOf(t *testing.T, of *s3test.Server, change func(*S3Options)) *S3 {
	t.Helper()
	o := S3Options{Endpoint: of.Endpoint, Bucket: "tasks", Prefix: "a/b", Region: "us-east-1", AccessKey: of.AccessKey,
		SecretKey: of.SecretKey, Temp: openFiles(t, t.TempDir())}
	if change != nil {
		change(&o)
	}
	s, err := NewS3(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// store writes a blob of random bytes.
func store(t *testing.T, s *S3, key string, size int64) ([]byte, Info) {
	t.Helper()
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(b)
	w, err := s.Create(t.Context(), key)
	if err == nil {
		_, err = w.Write(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	w.Discard()
	sum := sha256.Sum256(b)
	if want := (Info{size, hex.EncodeToString(sum[:])}); info != want {
		t.Errorf("info %+v, want %+v", info, want)
	}
	return b, info
}

func opened(t *testing.T, s *S3, key string) Reader {
	t.Helper()
	r, err := s.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// TestS3: blobs of all sizes are stored, read as a whole and in parts, replaced, listed and deleted, and nothing is
// left on the disk.
func TestS3(t *testing.T) {
	of := s3test.Start(t, "tasks")
	s := bucketOf(t, of, nil)
	for _, size := range []int64{0, 1, smallBlob, smallBlob + 1, partSize + 5} {
		want, info := store(t, s, "7f/a/input", size)
		r := opened(t, s, "7f/a/input")
		if err := info.Check(r); err != nil || r.Size() != size {
			t.Errorf("%d bytes: %v, size %d", size, err, r.Size())
		}
		from := size / 3
		if _, err := r.Seek(from, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want[from:]) {
			t.Errorf("%d bytes from %d: %d bytes, %v", size, from, len(got), err)
		}
		part := make([]byte, 10)
		n, err := r.ReadAt(part, from)
		if !bytes.Equal(part[:n], want[from:min(from+10, size)]) || n < len(part) && !errors.Is(err, io.EOF) {
			t.Errorf("%d bytes at %d: %d bytes, %v", size, from, n, err)
		}
		f, err := s.Fetch(t.Context(), "7f/a/input", info)
		if err != nil {
			t.Fatal(err)
		}
		name := f.(interface{ Name() string }).Name()
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the fetched file of %d bytes: %d bytes, %v", size, len(got), err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Fetch(t.Context(), "7f/a/input", Info{3, "00"}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged blob: %v", err)
	}
	store(t, s, "7f/ab/input", 2)
	if err := s.Put(t.Context(), "7f/ab/note", []byte("note")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "top", nil); err != nil {
		t.Fatal(err)
	}
	list, err := s.Folders(t.Context())
	want := []Folder{{"7f/a", []Entry{{"input", partSize + 5}}}, {"7f/ab", []Entry{{"input", 2}, {"note", 4}}}}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("the folders: %v, %v", list, err)
	}
	for range 2 {
		if err := s.Delete(t.Context(), "7f/a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Open(t.Context(), "7f/a/input"); coded.CodeOf(err) != coded.NotFound {
		t.Errorf("a deleted blob: %v", err)
	}
	if got := of.Objects("tasks"); !slices.Equal(got, []string{"a/b/7f/ab/input", "a/b/7f/ab/note", "a/b/top"}) {
		t.Errorf("the objects: %v", got)
	}
	if n := bytesBelow(t, s.o.Temp.folder); n != 0 {
		t.Errorf("%d bytes are left on the disk", n)
	}
	for _, key := range []string{"", "..", "a/../../b", "a//b", ".a", `a\b`} {
		_, created := s.Create(t.Context(), key)
		_, read := s.Open(t.Context(), key)
		for _, err := range []error{created, read, s.Delete(t.Context(), key), s.Put(t.Context(), key, nil)} {
			if coded.CodeOf(err) != coded.InvalidArgument {
				t.Errorf("%q: %v", key, err)
			}
		}
	}
}

// TestS3Broken: a reader goes on after a restart of the server, and a second Commit sends the bytes that the first one
// could not send.
func TestS3Broken(t *testing.T) {
	of := s3test.Start(t, "tasks")
	s := bucketOf(t, of, nil)
	_, info := store(t, s, "7f/a/input", 24<<20)
	r := opened(t, s, "7f/a/input")
	sum := sha256.New()
	if _, err := io.CopyN(sum, r, 1<<20); err != nil {
		t.Fatal(err)
	}
	of.Stop()
	of.Run()
	if _, err := io.Copy(sum, r); err != nil || hex.EncodeToString(sum.Sum(nil)) != info.SHA256 {
		t.Errorf("after a restart: %v", err)
	}
	w, err := s.Create(t.Context(), "7f/b/input")
	if err == nil {
		_, err = io.WriteString(w, "abc")
	}
	if err != nil {
		t.Fatal(err)
	}
	of.Stop()
	if _, err := w.Commit(); !errors.Is(err, ErrAway) || coded.CodeOf(err) != coded.Unavailable {
		t.Errorf("without a server: %v", err)
	}
	of.Run()
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(opened(t, s, "7f/b/input")); err != nil || string(got) != "abc" {
		t.Errorf("%q, %v", got, err)
	}
}

// cancelling ends a context when a byte after an offset is read.
type cancelling struct {
	after  int64
	cancel func()
}

func (c cancelling) ReadAt(b []byte, at int64) (int, error) {
	if at > c.after {
		c.cancel()
	}
	return len(b), nil
}

// unfinished returns the number of transfers in parts that have not ended.
func unfinished(t *testing.T, s *S3) (n int) {
	t.Helper()
	for u := range s.client.ListIncompleteUploads(t.Context(), s.o.Bucket, "", true) {
		if u.Err != nil {
			t.Fatal(u.Err)
		}
		n++
	}
	return n
}

// TestS3Parts: a transfer in parts that fails leaves no part, a transfer of a killed process is aborted by its age, and
// a transfer takes little memory.
func TestS3Parts(t *testing.T) {
	s := bucketOf(t, s3test.Start(t, "tasks"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.send(ctx, "7f/a/input", cancelling{40 << 20, cancel}, 3*partSize); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled transfer: %v", err)
	}
	if n := unfinished(t, s); n != 0 {
		t.Errorf("%d transfers are left", n)
	}
	o := minio.PutObjectOptions{}
	if _, err := s.client.NewMultipartUpload(t.Context(), "tasks", "a/b/7f/a/input", o); err != nil {
		t.Fatal(err)
	}
	own, others := func(folder string) bool { return folder == "7f/a" }, func(string) bool { return false }
	young, old := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if err := s.AbortUnfinished(t.Context(), young, own); err != nil || unfinished(t, s) != 1 {
		t.Errorf("young transfers: %v, %d are left", err, unfinished(t, s))
	}
	if err := s.AbortUnfinished(t.Context(), old, others); err != nil || unfinished(t, s) != 1 {
		t.Errorf("transfers of others: %v, %d are left", err, unfinished(t, s))
	}
	if err := s.AbortUnfinished(t.Context(), old, own); err != nil || unfinished(t, s) != 0 {
		t.Errorf("old transfers: %v, %d are left", err, unfinished(t, s))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := s.send(t.Context(), "7f/a/input", cancelling{1 << 40, nil}, 3*partSize); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > partSize/2 {
		t.Errorf("a transfer of %d MiB takes %d MiB", 3*partSize>>20, got>>20)
	}
}

// TestS3Errors: the error of each fault names the setting or the bucket, and says whether to try again.
func TestS3Errors(t *testing.T) {
	of := s3test.Start(t, "tasks")
	secure := strings.Replace(of.Endpoint, "http://", "https://", 1)
	for _, c := range []struct {
		name    string
		change  func(*S3Options)
		want    string
		refused bool
	}{
		{"no bucket", func(o *S3Options) { o.Bucket = "missing" }, "tasks.blobs: .* bucket missing does not exist", true},
		{"key", func(o *S3Options) { o.AccessKey = "x" }, "tasks.s3.access_key: .* not know the access key x", true},
		{"secret", func(o *S3Options) { o.SecretKey = "x" }, "tasks.s3.secret_key: .* not the secret of .* tasks", true},
		{"rights", func(o *S3Options) { o.AccessKey, o.SecretKey = of.OtherKey, of.OtherSecret },
			"tasks.s3.access_key: .* other may not list, read, write and delete objects of the bucket tasks", true},
		{"no TLS", func(o *S3Options) { o.Endpoint = secure }, "tasks.blobs: .* s3://tasks/a/b at https://", false},
		{"away", func(o *S3Options) { o.Endpoint = "http://127.0.0.1:1" }, "tasks.blobs: .* s3://tasks/a/b at .* answer",
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := bucketOf(t, of, c.change)
			_, listed := s.Folders(t.Context())
			_, read := s.Open(t.Context(), "7f/a/input")
			for doing, err := range map[string]error{"list": listed, "read": read,
				"write": s.Put(t.Context(), "7f/a/input", []byte("x")), "delete": s.Delete(t.Context(), "7f/a")} {
				if !errors.Is(err, ErrAway) || coded.CodeOf(err) != coded.Unavailable || IsRefused(err) != c.refused {
					t.Errorf("%s: %v", doing, err)
				}
				if ok, _ := regexp.MatchString(c.want, err.Error()); !ok {
					t.Errorf("%s: %v, want %s", doing, err, c.want)
				}
			}
		})
	}
	if _, err := NewS3(S3Options{Endpoint: of.Endpoint, CA: "/dev/null"}); err == nil ||
		!strings.Contains(err.Error(), "tasks.s3.ca") {
		t.Errorf("no certificate: %v", err)
	}
}

// TestS3TLS: over TLS, blobs are stored with the authority of tasks.s3.ca, and no blob with another authority.
func TestS3TLS(t *testing.T) {
	of, other := s3test.StartTLS(t, "tasks"), s3test.StartTLS(t, "tasks")
	s := bucketOf(t, of, func(o *S3Options) { o.CA = of.CA })
	want, _ := store(t, s, "7f/a/input", partSize+5)
	if got, err := io.ReadAll(opened(t, s, "7f/a/input")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for name, ca := range map[string]string{"the authorities of this machine": "", "another authority": other.CA} {
		err := bucketOf(t, of, func(o *S3Options) { o.CA = ca }).Put(t.Context(), "7f/b/input", []byte("x"))
		if !IsRefused(err) || !strings.Contains(err.Error(), "tasks.s3.ca: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := of.Objects("tasks"); len(got) != 1 {
		t.Errorf("objects %q", got)
	}
}
