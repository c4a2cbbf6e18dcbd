package container

import (
	"context"
	"errors"
	"io"
	"mime"
	"os"
	"path"
	"path/filepath"
	"strings"

	"millrace/internal/ctxio"
	"millrace/internal/ziptree"
	"millrace/stream"
)

// maxRatio is the largest ratio of extracted bytes to the bytes of a zip.
const maxRatio = 200

// folder is the working folder of a run.
type folder struct {
	path   string
	limits *parameters
}

// makeFolder makes the working folder of a run, with the folders input and output. Only the user of the containers
// and the user of the server can write to output.
func (e *Engine) makeFolder(run string, p *parameters) (*folder, error) {
	f := &folder{path: filepath.Join(e.folder, "runs", run), limits: p}
	if err := os.RemoveAll(f.path); err != nil { // an attempt of the run before a crash
		return nil, err
	}
	err := os.Mkdir(f.path, 0o711)
	for _, name := range []string{"input", "output"} {
		if err == nil {
			err = os.Mkdir(filepath.Join(f.path, name), 0o755)
		}
	}
	if err == nil && (e.uid != os.Getuid() || e.gid != os.Getgid()) {
		err = os.Chown(f.output(), e.uid, e.gid)
	}
	if err != nil {
		f.remove()
		return nil, stream.Errorf(stream.Internal, "", "the working folder of the task cannot be made: %w", err)
	}
	return f, nil
}

func (f *folder) input() string  { return filepath.Join(f.path, "input") }
func (f *folder) output() string { return filepath.Join(f.path, "output") }

func (f *folder) remove() { _ = os.RemoveAll(f.path) }

// writeInput writes the input of a run: the files of a zip, or one file with the name of the client's file.
func (f *folder) writeInput(ctx context.Context, r *stream.FileRun) error {
	root, err := os.OpenRoot(f.input())
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if isZip(r) {
		err := ziptree.Extract(ctx, root, r.Input, r.Size, ziptree.Limits{Bytes: f.limits.Input, Files: f.limits.Files,
			Ratio: maxRatio})
		return zipError(err, stream.InvalidArgument, "", "the input")
	}
	to, err := root.OpenFile(fileName(r.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, ctxio.Reader(ctx, io.NewSectionReader(r.Input, 0, r.Size)),
		make([]byte, 64<<10))
	return errors.Join(err, to.Chmod(0o644), to.Close())
}

// isZip reports whether an input is extracted.
func isZip(r *stream.FileRun) bool {
	kind, _, _ := mime.ParseMediaType(r.Type)
	return kind == "application/zip" || kind == "application/x-zip-compressed" ||
		strings.EqualFold(path.Ext(r.Name), ".zip")
}

// fileName returns the name of an input that is one file: the client's, if usable as the name of a file.
func fileName(name string) string {
	if name == "" || strings.Contains(name, "/") || ziptree.Name(name) != nil {
		return "input"
	}
	return name
}

// writeResult writes the result of a run: the only file in output, or a zip of all files, with container.zip in any
// case.
func (f *folder) writeResult(ctx context.Context, r *stream.FileRun) error {
	root, err := os.OpenRoot(f.output())
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	l := ziptree.Limits{Bytes: f.limits.Output, Files: f.limits.Files}
	infos, names, err := ziptree.List(root, l)
	switch {
	case err != nil:
		return zipError(err, stream.InvalidArgument, "", "/output")
	case len(names) == 0:
		return stream.Errorf(stream.InvalidArgument, "",
			"the container has ended with status 0, and wrote no file to /output")
	case len(names) == 1 && !infos[0].IsDir() && !f.limits.Zip:
		media := mime.TypeByExtension(path.Ext(names[0]))
		if media == "" {
			media = "application/octet-stream"
		}
		to, err := r.Create(names[0], media)
		if err == nil {
			err = ziptree.Copy(ctx, to, root, names[0], infos[0].Size(), make([]byte, 64<<10))
		}
		return err
	}
	to, err := r.Create("output.zip", "application/zip")
	if err == nil {
		err = ziptree.Pack(ctx, to, root, l)
	}
	return zipError(err, stream.InvalidArgument, "", "/output")
}

// zipError gives an error of ziptree a code: TooLarge for limits, otherwise code.
func zipError(err error, code stream.Code, field, what string) error {
	var rule *ziptree.Error
	if !errors.As(err, &rule) {
		return err
	}
	if rule.Large {
		code = stream.TooLarge
	}
	return stream.Errorf(code, field, "%s: %w", what, err)
}
