// Package web is the console: live streams of a camera, a file or the bundled clip with their results, server
// streams, models, tasks, traces and figures; and the page of the server's OpenAPI document. The sources of the pages
// are in console/, client/ and docs/; `npm run build` writes dist/, which is embedded.
//
// The package owns the pages and their routes, and must not know models or streams: the pages use the same public API
// as any other client.
package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"path"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
)

//go:embed dist
var dist embed.FS

// Options configure the console.
type Options struct {
	Clip  []byte // an MP4 to stream, at /console/clip.mp4; nil = none
	Login bool   // clients need credentials: the console asks for a key, and sends the key to /login
	// Passwords is true if users log in with a name and a password, sent by the console to /session_login.
	Passwords bool
	// Managed reports whether the address of a request has the routes that change the server: at other addresses, the
	// console hides everything that needs these routes. nil = all addresses have the routes.
	Managed func(*fiber.Ctx) bool
}

// contentPolicy allows the page to load only its own files.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src " +
	"'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// docsPolicy is the policy for the page of the OpenAPI document. The style sheet of its viewer contains the viewer's
// icons.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src " +
	"'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// asset is a file of a page.
type asset struct {
	data        []byte
	contentType string
	etag        string
}

func newAsset(name string, data []byte) asset {
	sum := sha256.Sum256(data)
	kind := mime.TypeByExtension(path.Ext(name))
	switch path.Ext(name) { // the system's table may differ
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".txt":
		kind = "text/plain; charset=utf-8"
	case ".mp4":
		kind = "video/mp4"
	case ".json":
		kind = "application/json"
	}
	return asset{data, kind, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// Mount registers the routes of the pages: /console/ and /docs/ with their files, and a redirect from /.
// /console/console.json describes the server for the page:
// {"clip":true,"login":false,"passwords":false,"manage":true}. Other paths get the listener's own 404.
func Mount(h *httpd.Server, o Options) {
	assets, docs := map[string]asset{}, map[string]asset{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := dist.ReadFile(name)
		name = strings.TrimPrefix(name, "dist/")
		if file, ok := strings.CutPrefix(name, "docs/"); ok {
			docs[file] = newAsset(name, data)
		} else {
			assets[name] = newAsset(name, data)
		}
		return err
	})
	if err != nil {
		panic(err) // embedded
	}
	if o.Clip != nil {
		assets["clip.mp4"] = newAsset("clip.mp4", o.Clip)
	}
	offers := func(manage bool) asset {
		return newAsset("console.json", fmt.Appendf(nil, `{"clip":%t,"login":%t,"passwords":%t,"manage":%t}`,
			o.Clip != nil, o.Login, o.Passwords, manage))
	}
	assets["console.json"] = offers(true)
	unmanaged := offers(false)
	h.App.Get("/", func(c *fiber.Ctx) error { return httpd.Redirect(c, "/console/", fiber.StatusFound) })
	serve(h.App, "/console", contentPolicy, func(c *fiber.Ctx, name string) (asset, bool) {
		if name == "console.json" && o.Managed != nil && !o.Managed(c) {
			return unmanaged, true
		}
		a, ok := assets[name]
		return a, ok
	})
	serve(h.App, "/docs", docsPolicy, func(_ *fiber.Ctx, name string) (asset, bool) {
		a, ok := docs[name]
		return a, ok
	})
}

// serve registers the routes of a page and its files.
func serve(app *fiber.App, at, policy string, file func(c *fiber.Ctx, name string) (asset, bool)) {
	handle := func(c *fiber.Ctx) error {
		name := c.Params("*")
		if name == "" && !strings.HasSuffix(c.Path(), "/") {
			return httpd.Redirect(c, at+"/", fiber.StatusFound)
		}
		a, ok := file(c, cmp.Or(name, "index.html"))
		if !ok {
			return c.Next() // the listener's own 404
		}
		c.Set("Content-Security-Policy", policy)
		return a.send(c)
	}
	app.Get(at, handle)
	app.Get(at+"/*", handle)
}

// send answers with the asset, or with the requested range of the asset.
func (a asset) send(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, a.contentType)
	c.Set(fiber.HeaderETag, a.etag)
	c.Set(fiber.HeaderCacheControl, "no-cache")
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set("Permissions-Policy", "camera=(self), display-capture=(self)")
	c.Set("Referrer-Policy", "no-referrer")
	c.Set(fiber.HeaderAcceptRanges, "bytes")
	if c.Get(fiber.HeaderIfNoneMatch) == a.etag {
		c.Status(fiber.StatusNotModified)
		return nil
	}
	from, to, ok := httpd.Part(c, int64(len(a.data)))
	if !ok {
		return nil
	}
	return c.SendStream(bytes.NewReader(a.data[from:to]), int(to-from))
}
