package modelsource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"millrace/internal/modelurl"
	"millrace/internal/outbound"
)

// S3 names the server of all addresses s3://.
type S3 struct {
	Endpoint  string // https://HOST[:PORT]; http:// is not encrypted
	Region    string
	AccessKey string // "" = public buckets only
	SecretKey string
	CA        string // path of a PEM file with the authorities of the server; "" = those of this machine
}

// s3Tries is the number of times that a request is sent, and an interrupted transfer continued.
const s3Tries = 3

// s3Origin fetches an object, or the objects of a folder.
type s3Origin struct {
	o      S3
	client minio.Core
}

var _ origin = (*s3Origin)(nil)

func (c *Cache) openS3() (origin, error) {
	o := c.o.S3
	o.Endpoint = cmp.Or(o.Endpoint, "https://s3.amazonaws.com")
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" {
		return nil, errors.New("tasks.s3.endpoint: is no address such as https://s3.example.org:9000")
	}
	rule := c.rule(outbound.HostPort(u))
	t := &http.Transport{Proxy: rule.Proxy, DialContext: rule.Dial, TLSHandshakeTimeout: 30 * time.Second,
		ResponseHeaderTimeout: c.o.Idle, IdleConnTimeout: c.o.Idle, DisableCompression: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if o.CA != "" {
		text, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("tasks.s3.ca: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tasks.s3.ca: %s has no certificate in PEM", o.CA)
		}
	}
	client, err := minio.NewCore(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(o.AccessKey, o.SecretKey, ""), Secure: u.Scheme == "https", Transport: t,
		Region: o.Region, MaxRetries: s3Tries,
	})
	if err != nil {
		return nil, fmt.Errorf("tasks.s3.endpoint: %w", err)
	}
	return &s3Origin{o, *client}, nil
}

func (s *s3Origin) check(u modelurl.URL) error { return nil }

// id has the server and the user, because others may have another bucket of the same name, or no right to read it.
func (s *s3Origin) id(u modelurl.URL) string {
	_, _, folder := bucketKey(u)
	return fmt.Sprintf("%q %q %q %v", s.o.Endpoint, s.o.AccessKey, u.Base, folder)
}

// object is an object of a source.
type object struct {
	key, etag string
	size      int64
	path      string // below the source
}

// bucketKey returns the bucket and the key of an address; folder = the address names no object.
func bucketKey(u modelurl.URL) (bucket, key string, folder bool) {
	bucket, key, _ = strings.Cut(u.Base, "/")
	return bucket, strings.TrimSuffix(key, "/"), key == "" || strings.HasSuffix(key, "/") || u.Path != ""
}

// list lists the objects of a source.
func (s *s3Origin) list(ctx context.Context, u modelurl.URL) (found []object, err error) {
	bucket, key, folder := bucketKey(u)
	if !folder {
		st, err := s.client.StatObject(ctx, bucket, key, minio.StatObjectOptions{})
		if err == nil {
			return []object{{key, st.ETag, st.Size, path.Base(key)}}, nil
		}
		if code := minio.ToErrorResponse(err).Code; code != minio.NoSuchKey && code != minio.AccessDenied {
			return nil, s.failed(ctx, bucket, err)
		} // the answer of a list has the reason of a refusal, which a HEAD request has not
	}
	prefix := key + "/"
	if key == "" {
		prefix = ""
	}
	for o := range s.client.ListObjectsIter(ctx, bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		name := strings.TrimPrefix(o.Key, prefix)
		switch {
		case o.Err != nil:
			return nil, s.failed(ctx, bucket, o.Err)
		case strings.HasSuffix(o.Key, "/"): // a mark of a folder
			continue
		case !fs.ValidPath(name) || strings.ContainsFunc(name, func(r rune) bool {
			return r == '\\' || unicode.IsControl(r)
		}):
			return nil, fmt.Errorf("the bucket has the object %.200q, whose path leads out of the source", o.Key)
		case len(found) >= maxFiles:
			return nil, fmt.Errorf("the source has more than %d files", maxFiles)
		}
		found = append(found, object{o.Key, o.ETag, o.Size, name})
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the bucket %s at %s has no object %s and no objects below %s", bucket, s.o.Endpoint,
			key, prefix)
	}
	return found, nil
}

func (s *s3Origin) revision(ctx context.Context, u modelurl.URL) (string, error) {
	found, err := s.list(ctx, u)
	if err != nil {
		return "", err
	}
	return revisionOf(found), nil
}

func revisionOf(objects []object) string {
	h := sha256.New()
	for _, o := range objects {
		fmt.Fprintf(h, "%q %q %d\n", o.path, o.etag, o.size)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (s *s3Origin) fetch(ctx context.Context, u modelurl.URL, revision string, w *work) (string, error) {
	found, err := s.list(ctx, u)
	if err != nil {
		return "", err
	}
	if revisionOf(found) != revision {
		return "", errors.New("the objects have changed while they were read")
	}
	total := int64(0)
	for _, o := range found {
		if total += o.size; total > w.max {
			return "", tooLarge(w.max)
		}
	}
	// parts of another revision, which a failed fetch left, are removed
	parts := filepath.Join(w.dir, "objects", revision[:16])
	if _, err := os.Stat(parts); err != nil {
		if err := errors.Join(os.RemoveAll(filepath.Dir(parts)), os.MkdirAll(parts, 0o700)); err != nil {
			return "", err
		}
	}
	bucket, _, _ := bucketKey(u)
	done := int64(0)
	for i, o := range found {
		part := filepath.Join(parts, fmt.Sprint(i))
		if err := s.receive(ctx, bucket, o, part, done, total, w); err != nil {
			return "", err
		}
		done += o.size
	}
	root, err := makeRoot(w.tree)
	if err != nil {
		return "", err
	}
	defer root.Close()
	for i, o := range found {
		if err := root.MkdirAll(path.Dir(o.path), 0o700); err != nil {
			return "", err
		}
		to := filepath.Join(w.tree, filepath.FromSlash(o.path))
		if err := os.Rename(filepath.Join(parts, fmt.Sprint(i)), to); err != nil {
			return "", err
		}
	}
	return revision, nil
}

// receive receives the bytes of an object that are missing in a file. All bytes are of one state of the object.
func (s *s3Origin) receive(ctx context.Context, bucket string, o object, part string, done, total int64,
	w *work) error {
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for tries := 0; ; {
		have, err := f.Seek(0, io.SeekEnd)
		if err != nil || have >= o.size {
			return err
		}
		var get minio.GetObjectOptions
		if err := get.SetMatchETag(o.etag); err != nil {
			return err
		}
		if have > 0 {
			if err := get.SetRange(have, o.size-1); err != nil {
				return err
			}
		}
		body, _, _, err := s.client.GetObject(ctx, bucket, o.key, get)
		if err != nil {
			return s.failed(ctx, bucket, err)
		}
		err = copyTo(ctx, f, io.LimitReader(body, o.size-have), done+have, total, w)
		_ = body.Close()
		now, _ := f.Seek(0, io.SeekEnd)
		if now >= o.size {
			return nil
		}
		if tries++; now > have {
			tries = 0
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if tries >= s3Tries {
			return s.failed(ctx, bucket, errors.Join(err, io.ErrUnexpectedEOF))
		}
	}
}

// failed returns the error of a request, which names the setting.
func (s *s3Origin) failed(ctx context.Context, bucket string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var untrusted *tls.CertificateVerificationError
	at := s.o.Endpoint
	switch code := minio.ToErrorResponse(err).Code; {
	case code == minio.NoSuchBucket:
		return fmt.Errorf("the bucket %s does not exist at %s (tasks.s3.endpoint)", bucket, at)
	case code == minio.NoSuchKey || code == "PreconditionFailed":
		return fmt.Errorf("an object of the bucket %s has changed or is gone", bucket)
	case code == "InvalidAccessKeyId":
		return fmt.Errorf("tasks.s3.access_key: %s does not know the access key %s", at, s.o.AccessKey)
	case code == "SignatureDoesNotMatch":
		return fmt.Errorf("tasks.s3.secret_key: is not the secret of the access key %s at %s", s.o.AccessKey, at)
	case code == minio.AccessDenied && s.o.AccessKey == "":
		return fmt.Errorf("tasks.s3.access_key: %s has no bucket %s for everybody: set the access key", at, bucket)
	case code == minio.AccessDenied:
		return fmt.Errorf("tasks.s3.access_key: the access key %s may not list and read objects of the bucket %s at %s",
			s.o.AccessKey, bucket, at)
	case errors.As(err, &untrusted):
		return fmt.Errorf("tasks.s3.ca: the certificate of %s is not valid: %w", at, untrusted.Err)
	}
	return fmt.Errorf("%s does not answer as an S3 server: %w", at, cause(ctx, err))
}
