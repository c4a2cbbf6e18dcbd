package tasks

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/tasks"
)

// An input arrives in several requests by the protocol tus 1.0 (https://tus.io/protocols/resumable-upload), with the
// extensions in tusExtensions.
const (
	uploadsRoot = "/v2/uploads"
	uploadPath  = uploadsRoot + "/:id"

	tusVersion    = "1.0.0"
	tusExtensions = "creation,expiration,termination"
	partType      = "application/offset+octet-stream"

	maxMetadata = 4 << 10 // bytes of the header Upload-Metadata
)

// The headers of tus.
const (
	headerTus      = "Tus-Resumable"
	headerVersion  = "Tus-Version"
	headerExtend   = "Tus-Extension"
	headerMaxSize  = "Tus-Max-Size"
	headerOffset   = "Upload-Offset"
	headerSize     = "Upload-Length"
	headerMetadata = "Upload-Metadata"
	headerExpires  = "Upload-Expires"
	headerDefer    = "Upload-Defer-Length"
)

func (a *Adapter) uploadRoutes(app fiber.Router) {
	app.Options(uploadsRoot, a.describeUploads)
	app.Post(uploadsRoot, tus(a.createUpload))
	app.Get(uploadPath, tus(a.showUpload)) // and HEAD
	app.Patch(uploadPath, tus(a.appendUpload))
	app.Delete(uploadPath, tus(a.deleteUpload))
}

// tus adds the headers of the protocol to the replies of a handler, and refuses other versions.
func tus(h fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		c.Set(headerTus, tusVersion)
		if got := c.Get(headerTus); got != tusVersion {
			c.Set(headerVersion, tusVersion)
			return httpd.WithStatus(http.StatusPreconditionFailed, stream.Errorf(stream.Unsupported, headerTus,
				"is %.40q: the version of the protocol here is %s", got, tusVersion))
		}
		return h(c)
	}
}

// describeUploads says what the server takes, to a client that does not know the version.
func (a *Adapter) describeUploads(c *fiber.Ctx) error {
	c.Set(headerTus, tusVersion)
	c.Set(headerVersion, tusVersion)
	c.Set(headerExtend, tusExtensions)
	c.Set(headerMaxSize, strconv.FormatInt(a.opts.MaxInput, 10))
	return c.SendStatus(http.StatusNoContent)
}

// uploadState is an upload in replies.
type uploadState struct {
	ID      string    `json:"id"` // also of the task, when all bytes have arrived
	Offset  int64     `json:"offset"`
	Length  int64     `json:"length"`
	Expires time.Time `json:"expires,omitzero"` // unless further bytes arrive
}

// sendUpload sends the state of an upload.
func sendUpload(c *fiber.Ctx, u tasks.Upload) error {
	setState(c, u.Offset, u.Expires)
	c.Set(headerSize, strconv.FormatInt(u.Length, 10))
	c.Set(fiber.HeaderCacheControl, "no-store")
	if u.Metadata != "" {
		c.Set(headerMetadata, u.Metadata)
	}
	return c.JSON(uploadState{u.Task.ID, u.Offset, u.Length, u.Expires})
}

func setState(c *fiber.Ctx, offset int64, expires time.Time) {
	c.Set(headerOffset, strconv.FormatInt(offset, 10))
	if !expires.IsZero() {
		c.Set(headerExpires, expires.UTC().Format(http.TimeFormat))
	}
}

// createUpload begins an upload, or returns the upload with the same idempotency key.
func (a *Adapter) createUpload(c *fiber.Ctx) error {
	by, err := a.client(c)
	if err != nil {
		return err
	}
	n := tasks.NewUpload{Admit: func(u tasks.Usage) error { return admit(by, u) }}
	if n.Upload, err = a.readUpload(c, time.Now().UTC()); err != nil {
		return err
	}
	if err := a.maySubmit(by, &n.Task); err != nil {
		return err
	}
	span := a.beginSubmission(c, by, &n.Task)
	n.Task.Owner = ownerOf(by)
	u, there, err := a.opts.Data.CreateUpload(c.UserContext(), n)
	if err != nil {
		return err
	}
	if !there {
		a.endSubmission(c, span, u.Task.ID, u.Length)
	}
	c.Location(httpd.Relative(c, uploadsRoot+"/"+u.Task.ID))
	if !there {
		c.Status(http.StatusCreated)
	}
	return sendUpload(c, u)
}

// readUpload reads the headers and the query of a new upload. The options of the task are in the header
// Upload-Metadata, in the query, or in both.
func (a *Adapter) readUpload(c *fiber.Ctx, now time.Time) (u tasks.Upload, err error) {
	if c.Get(headerDefer) != "" {
		return u, stream.Errorf(stream.Unsupported, headerDefer, "is not taken: give the length as %s", headerSize)
	}
	if u.Length, err = count(c, headerSize); err != nil {
		return u, err
	}
	if u.Length > a.opts.MaxInput {
		return u, stream.Errorf(stream.TooLarge, headerSize, "is %d, and the setting %s allows %d bytes", u.Length,
			SettingMaxInput, a.opts.MaxInput)
	}
	if u.Metadata = strings.Clone(c.Get(headerMetadata)); len(u.Metadata) > maxMetadata {
		return u, stream.Errorf(stream.InvalidArgument, headerMetadata, "is longer than %d bytes", maxMetadata)
	}
	set, err := metadata(u.Metadata)
	if err != nil {
		return u, err
	}
	u.Task.Key = strings.Clone(c.Get(headerKey))
	for _, m := range set {
		if err := setMetadata(&u, m[0], m[1], now); err != nil {
			return u, err
		}
	}
	return u, readOptions(c, &u.Task, now)
}

// count reads a header with a number of bytes.
func count(c *fiber.Ctx, header string) (int64, error) {
	n, err := strconv.ParseInt(c.Get(header), 10, 64)
	if err != nil || n < 0 {
		return 0, stream.Errorf(stream.InvalidArgument, header, "is %.40q: want a number of bytes", c.Get(header))
	}
	return n, nil
}

// metadata reads the header Upload-Metadata: pairs of a name and a text in Base64, separated by commas.
func metadata(header string) (pairs [][2]string, err error) {
	for pair := range strings.SplitSeq(header, ",") {
		name, text, _ := strings.Cut(strings.TrimSpace(pair), " ")
		if name == "" && text == "" {
			continue
		}
		plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			return nil, stream.Errorf(stream.InvalidArgument, headerMetadata, "%.40q does not have a text in Base64",
				name)
		}
		pairs = append(pairs, [2]string{name, string(plain)})
	}
	return pairs, nil
}

// setMetadata sets a field of the metadata of an upload: an option of the task, or what is a header of a submission in
// one request.
func setMetadata(u *tasks.Upload, name, text string, now time.Time) error {
	if len(text) > maxAddress {
		return stream.Errorf(stream.InvalidArgument, headerMetadata, "%.40s is longer than %d bytes", name, maxAddress)
	}
	var field *string
	switch name {
	case "filename":
		field = &u.Task.Input.Name
	case "filetype", "type":
		field = &u.Task.Input.Type
	case "header_length":
		field = &u.Task.Input.Head
	case "idempotency_key":
		field = &u.Task.Key
	case "sha256":
		u.SHA256 = strings.ToLower(text)
		if sum, err := hex.DecodeString(u.SHA256); err != nil || len(sum) != sha256.Size {
			return stream.Errorf(stream.InvalidArgument, "sha256", "of %s is not 64 hexadecimal digits",
				headerMetadata)
		}
		return nil
	default:
		return setOption(&u.Task, name, text, now)
	}
	if len(text) > maxText {
		return stream.Errorf(stream.InvalidArgument, headerMetadata, "%s is longer than %d bytes", name, maxText)
	}
	*field = text
	return nil
}

// ownUpload returns the id of the upload of a request. The upload of another client does not exist: also a client with
// the role manage sees no unfinished uploads of others.
func (a *Adapter) ownUpload(c *fiber.Ctx) (by *ingest.Client, id string, err error) {
	if by, err = a.client(c); err != nil {
		return nil, "", err
	}
	id = strings.Clone(c.Params("id"))
	t, err := a.opts.Data.UploadTask(id)
	if err != nil {
		return nil, "", err
	}
	if t.ID != id || !by.Known() || t.Owner != ownerOf(by) {
		return nil, "", tasks.MissingUpload(id)
	}
	return by, id, by.CheckRights(access.Need{Role: role.Infer, Model: t.Model})
}

func (a *Adapter) showUpload(c *fiber.Ctx) error {
	_, id, err := a.ownUpload(c)
	if err != nil {
		return err
	}
	u, err := a.opts.Data.Upload(a.http.Context(c, a.ctx), id)
	if err != nil {
		return err
	}
	return sendUpload(c, u)
}

// appendUpload takes a part of an upload.
func (a *Adapter) appendUpload(c *fiber.Ctx) error {
	by, id, err := a.ownUpload(c)
	if err != nil {
		return err
	}
	if got := c.Get(fiber.HeaderContentType); got != partType {
		return httpd.WithStatus(http.StatusUnsupportedMediaType, stream.Errorf(stream.Unsupported,
			fiber.HeaderContentType, "is %.40q: want %s", got, partType))
	}
	at, err := count(c, headerOffset)
	if err != nil {
		return err
	}
	offset, task, err := a.opts.Data.AppendUpload(c.UserContext(), id, tasks.UploadPart{
		Offset: at, Stop: a.http.BodyStopper(c),
		Data: func(w io.Writer) error {
			_, err := a.http.Upload(c, a.opts.MaxInput, headerSize, w)
			return err
		},
		Admit: func(u tasks.Usage) error {
			if by.Principal() == nil {
				return nil
			}
			return by.Core().CheckRoom(stream.QuotaTaskBytes, u.Bytes)
		},
	})
	if err != nil {
		if coded.CodeOf(err) == coded.Conflict {
			setState(c, offset, time.Time{})
		}
		return err
	}
	var expires time.Time
	if task == nil {
		expires = time.Now().Add(a.opts.Data.UploadExpiry())
	}
	setState(c, offset, expires)
	return c.SendStatus(http.StatusNoContent)
}

func (a *Adapter) deleteUpload(c *fiber.Ctx) error {
	_, id, err := a.ownUpload(c)
	if err == nil {
		err = a.opts.Data.DeleteUpload(c.UserContext(), id)
	}
	if err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}
