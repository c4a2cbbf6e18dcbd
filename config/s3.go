package config

import (
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"millrace/stream/coded"
)

// S3 names the server of the bucket in tasks.blobs, and of models and repositories with an address s3://.
type S3 struct {
	Endpoint  string `yaml:"endpoint" default:"https://s3.amazonaws.com" advanced:"yes" help:"address of the S3 server, https://HOST[:PORT]. http:// only for this machine, or with tasks.s3.plain_http"`
	Region    string `yaml:"region" default:"us-east-1" advanced:"yes" help:"region of the bucket"`
	AccessKey string `yaml:"access_key" advanced:"yes" help:"access key, which may list, read, write and delete the objects of tasks.blobs, and list and read models at s3://"`
	SecretKey string `yaml:"secret_key" secret:"yes" example:"file:/run/secrets/s3" advanced:"yes" help:"secret of the access key, or file:PATH"`
	CA        string `yaml:"ca" path:"file" example:"s3.pem" unset:"the authorities of this machine" advanced:"yes" help:"PEM file with the authorities of the certificate of the S3 server"`
	PlainHTTP bool   `yaml:"plain_http" advanced:"yes" help:"send inputs and results without encryption to an S3 server on another machine"`
}

// The forms of the bucket and the prefix in tasks.blobs.
var (
	bucketForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixForm = regexp.MustCompile(`^([A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*)?$`)
)

// Bucket returns the bucket and the prefix of tasks.blobs. ok = false: blobs are in the folder data, or the setting is
// not valid.
func (t *Tasks) Bucket() (bucket, prefix string, ok bool) {
	rest, ok := strings.CutPrefix(t.Blobs, "s3://")
	bucket, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.TrimSuffix(prefix, "/")
	ok = ok && bucketForm.MatchString(bucket) && prefixForm.MatchString(prefix) && len(prefix) <= 512
	return bucket, prefix, ok
}

// validateBlobs returns the errors of tasks.blobs and tasks.s3 for a server with the folder data. part = other settings
// may follow. models = models use tasks.s3, too.
func (t *Tasks) validateBlobs(data string, part, models bool) error {
	bad := func(field, text string) error { return coded.Errorf(coded.InvalidArgument, field, "%s", text) }
	s := &t.S3
	if t.Blobs == "" && !models {
		for field, v := range map[string]string{"access_key": s.AccessKey, "secret_key": s.SecretKey, "ca": s.CA} {
			if v != "" && !part {
				return bad("tasks.s3."+field, "is set without tasks.blobs, and no model has an address s3://")
			}
		}
		return nil
	}
	var errs []error
	if t.Blobs == "" {
		return t.S3.checkEndpoint()
	}
	if _, _, ok := t.Bucket(); !ok {
		errs = append(errs, bad("tasks.blobs", "is not s3://BUCKET or s3://BUCKET/PREFIX, with letters, digits, - . _ "+
			"and / in the prefix"))
	}
	if data == "" && !part {
		errs = append(errs, bad("tasks.blobs", "needs data: a folder for the records and logs of tasks"))
	}
	if (s.AccessKey == "" || s.SecretKey == "") && !part {
		errs = append(errs, bad("tasks.blobs", "needs tasks.s3.access_key and tasks.s3.secret_key"))
	}
	return errors.Join(append(errs, s.checkEndpoint())...)
}

func (s *S3) checkEndpoint() error {
	bad := func(text string) error { return coded.Errorf(coded.InvalidArgument, "tasks.s3.endpoint", "%s", text) }
	u, err := url.Parse(s.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.User != nil:
		return bad("is no address such as https://s3.example.org:9000")
	case u.Scheme == "http" && !s.PlainHTTP && !isLoopback(u.Hostname()):
		return bad("is not encrypted: want https://, or set tasks.s3.plain_http when nobody else can read the network")
	}
	return nil
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() || host == "localhost"
}
