package blob

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"millrace/stream"
)

// S3 is a Store in a bucket of an S3 server. A blob is written to a file of Temp, and sent by Commit: a client that
// leaves has sent nothing, a broken transfer is repeated, and memory is bounded.
type S3 struct {
	o      S3Options
	client minio.Core
}

// S3Options name the bucket of an S3.
type S3Options struct {
	Endpoint  string // https://HOST[:PORT]; http:// is not encrypted
	Bucket    string
	Prefix    string // begins all keys, without the / between; "" = none
	Region    string
	AccessKey string
	SecretKey string
	CA        string // path of a PEM file with the authorities of the server; "" = the authorities of this machine
	Temp      *Files // has the files of unfinished and fetched blobs
}

var (
	_ Store  = (*S3)(nil)
	_ Lister = (*S3)(nil)
)

const (
	// partSize is the size from which a blob is sent in parts of the size.
	partSize = 32 << 20
	// s3Tries is the number of times that a request is sent, and an interrupted transfer continued.
	s3Tries = 3
	// s3Idle is the longest time in which a connection carries no byte.
	s3Idle = time.Minute
	// s3Dial is the longest time for a new connection.
	s3Dial = 5 * time.Second
	// smallBlob is the size up to which a blob is read at once.
	smallBlob = 256 << 10
)

// NewS3 returns the store of a bucket. NewS3 sends no request.
func NewS3(o S3Options) (*S3, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "tasks.s3.endpoint", "%w", err)
	}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialIdle, TLSHandshakeTimeout: 2 * s3Dial,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: s3Idle / 2, DisableCompression: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if o.CA != "" {
		text, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, stream.Errorf(stream.InvalidArgument, "tasks.s3.ca", "cannot be read: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, stream.Errorf(stream.InvalidArgument, "tasks.s3.ca", "%s has no certificate in PEM", o.CA)
		}
	}
	client, err := minio.NewCore(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(o.AccessKey, o.SecretKey, ""), Secure: u.Scheme == "https", Transport: t,
		Region: o.Region, MaxRetries: s3Tries,
	})
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "tasks.s3.endpoint", "%w", err)
	}
	return &S3{o, *client}, nil
}

// dialIdle makes a connection that ends when it carries no byte for s3Idle.
func dialIdle(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: s3Dial}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return idleConn{c}, nil
}

// idleConn moves the deadlines of a connection with each call.
type idleConn struct{ net.Conn }

func (c idleConn) Read(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(s3Idle))
	return c.Conn.Read(b)
}

func (c idleConn) Write(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(s3Idle))
	return c.Conn.Write(b)
}

// String returns the address of the store, for people.
func (s *S3) String() string {
	return "s3://" + path.Join(s.o.Bucket, s.o.Prefix) + " at " + s.o.Endpoint
}

// prefix returns the begin of the names of all objects.
func (s *S3) prefix() string {
	if s.o.Prefix == "" {
		return ""
	}
	return s.o.Prefix + "/"
}

// object returns the name of the object of a key that checkKey has accepted.
func (s *S3) object(key string) string { return path.Join(s.o.Prefix, key) }

// Create implements Store.
func (s *S3) Create(ctx context.Context, key string) (Writer, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	w, err := s.o.Temp.temporary(ctx)
	if err != nil {
		return nil, err
	}
	w.key = key
	return &s3Writer{w, s}, nil
}

// s3Writer writes one blob of S3.
type s3Writer struct {
	*fileWriter
	s3 *S3
}

// Commit implements Writer. After an error that wraps ErrAway, Commit may be called again.
func (w *s3Writer) Commit() (Info, error) {
	if w.ended {
		return Info{}, os.ErrClosed
	}
	err := w.endWrites()
	if err == nil {
		err = w.s3.send(w.ctx, w.key, w.file, w.size)
	}
	if err != nil {
		return Info{}, err
	}
	info := Info{w.size, hexDigest(w.hash)}
	w.Discard()
	return info, nil
}

// send makes the blob of a key. The parts of a failed transfer are removed.
func (s *S3) send(ctx context.Context, key string, from io.ReaderAt, size int64) error {
	ctx, cancel := context.WithCancel(ctx) // ends the transfers of other parts after an error
	defer cancel()
	_, err := s.client.Client.PutObject(ctx, s.o.Bucket, s.object(key), io.NewSectionReader(from, 0, size), size,
		minio.PutObjectOptions{PartSize: partSize, NumThreads: 2, ContentType: "application/octet-stream"})
	return s.failed(ctx, err)
}

// Adopt makes a complete file the blob of a key. The file is there no longer.
func (s *S3) Adopt(ctx context.Context, file, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = s.send(ctx, key, f, info.Size())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Remove(file)
}

// Put implements Store.
func (s *S3) Put(ctx context.Context, key string, b []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return s.send(ctx, key, strings.NewReader(string(b)), int64(len(b)))
}

// Has reports whether a blob exists.
func (s *S3) Has(ctx context.Context, key string) (bool, error) {
	if err := checkKey(key); err != nil {
		return false, err
	}
	_, err := s.client.StatObject(ctx, s.o.Bucket, s.object(key), minio.StatObjectOptions{})
	err = s.failed(ctx, err)
	if stream.CodeOf(err) == stream.NotFound {
		return false, nil
	}
	return err == nil, err
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, prefix string) error {
	if err := checkKey(prefix); err != nil {
		return err
	}
	name := s.object(prefix)
	for o := range s.client.ListObjectsIter(ctx, s.o.Bucket, minio.ListObjectsOptions{Prefix: name, Recursive: true}) {
		if o.Err != nil {
			return s.failed(ctx, o.Err)
		}
		if o.Key != name && !strings.HasPrefix(o.Key, name+"/") {
			continue
		}
		err := s.client.RemoveObject(ctx, s.o.Bucket, o.Key, minio.RemoveObjectOptions{})
		if err := s.failed(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

// Folders implements Lister.
func (s *S3) Folders(ctx context.Context) (found []Folder, err error) {
	prefix := s.prefix()
	places := map[string]int{}
	list := minio.ListObjectsOptions{Prefix: prefix, Recursive: true}
	for o := range s.client.ListObjectsIter(ctx, s.o.Bucket, list) {
		if o.Err != nil {
			return nil, s.failed(ctx, o.Err)
		}
		key := strings.TrimPrefix(o.Key, prefix)
		if checkKey(key) != nil || strings.Count(key, "/") != 2 {
			continue // of somebody else
		}
		folder, name := path.Split(key)
		folder = strings.TrimSuffix(folder, "/")
		i, known := places[folder]
		if !known {
			i = len(found)
			places[folder] = i
			found = append(found, Folder{Key: folder})
		}
		found[i].Blobs = append(found[i].Blobs, Entry{name, o.Size})
	}
	return found, ctx.Err()
}

// AbortUnfinished removes the parts of transfers from before a time, which a process has left that was killed. Only
// transfers to blobs directly in a folder for which own is true are removed: others may use the bucket, too.
func (s *S3) AbortUnfinished(ctx context.Context, before time.Time, own func(folder string) bool) error {
	prefix := s.prefix()
	for u := range s.client.ListIncompleteUploads(ctx, s.o.Bucket, prefix, true) {
		if u.Err != nil {
			return s.failed(ctx, u.Err)
		}
		if u.Initiated.After(before) || !own(path.Dir(strings.TrimPrefix(u.Key, prefix))) {
			continue
		}
		if err := s.client.AbortMultipartUpload(ctx, s.o.Bucket, u.Key, u.UploadID); err != nil &&
			minio.ToErrorResponse(err).Code != minio.NoSuchUpload {
			return s.failed(ctx, err)
		}
	}
	return nil
}

// ErrAway is wrapped by the errors of an S3 server that does not answer or refuses requests.
var ErrAway = errors.New("inputs and results cannot be stored or read")

// errRefused is ErrAway for errors that another try does not solve.
var errRefused = fmt.Errorf("%w", ErrAway)

// IsRefused reports whether an error wraps ErrAway, and somebody must change a setting or the S3 server.
func IsRefused(err error) bool { return errors.Is(err, errRefused) }

// failed returns the error of a request. Errors: NotFound, for a missing blob; Unavailable, with ErrAway.
func (s *S3) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	refused := func(field, format string, args ...any) error {
		return stream.Errorf(stream.Unavailable, field, "%w: "+format, append([]any{errRefused}, args...)...)
	}
	var (
		untrusted *tls.CertificateVerificationError
		local     *os.PathError
	)
	code := minio.ToErrorResponse(err).Code
	switch {
	case errors.As(err, &local): // of the file that is sent
		return err
	case code == minio.NoSuchKey:
		return stream.Errorf(stream.NotFound, "", "the stored file %s does not exist in %s",
			strings.TrimPrefix(minio.ToErrorResponse(err).Key, s.o.Prefix+"/"), s)
	case code == minio.NoSuchBucket:
		return refused("tasks.blobs", "the bucket %s does not exist at %s: make the bucket, or name another",
			s.o.Bucket, s.o.Endpoint)
	case code == "InvalidAccessKeyId":
		return refused("tasks.s3.access_key", "%s does not know the access key %s", s.o.Endpoint, s.o.AccessKey)
	case code == "SignatureDoesNotMatch":
		return refused("tasks.s3.secret_key", "is not the secret of the access key %s at %s, or tasks.s3.region is "+
			"not the region", s.o.AccessKey, s.o.Endpoint)
	case code == minio.AccessDenied:
		return refused("tasks.s3.access_key", "the access key %s may not list, read, write and delete objects of the "+
			"bucket %s at %s: give the key these rights", s.o.AccessKey, s.o.Bucket, s.o.Endpoint)
	case slices.Contains([]string{"AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect",
		"AuthorizationQueryParametersError"}, code):
		return refused("tasks.s3.region", "%s has the bucket %s in another region than %s: %v", s.o.Endpoint,
			s.o.Bucket, s.o.Region, err)
	case errors.As(err, &untrusted):
		return refused("tasks.s3.ca", "the certificate of %s is not valid: %v", s.o.Endpoint, untrusted.Err)
	}
	return stream.Errorf(stream.Unavailable, "tasks.blobs", "%w: %s does not answer as an S3 server: %v", ErrAway, s,
		err)
}
