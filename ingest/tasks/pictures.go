package tasks

import (
	"errors"
	"io"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/internal/ziptree"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// Bounds of a zip archive of pictures, beside the bounds of package ziptree.
const (
	maxPictures      = 1 << 20
	maxPictureBytes  = 1 << 40 // of all pictures, extracted
	maxPicturesRatio = 100     // pictures are compressed already
)

// runPictures runs a task whose input is a zip archive of pictures: each picture becomes a request. A file that is no
// picture gets a line with the error.
func (a *Adapter) runPictures(c tasks.Claim, in blob.Reader, trace stream.TraceContext) (tasks.File, error) {
	limits := ziptree.Limits{Bytes: maxPictureBytes, Files: maxPictures, Ratio: maxPicturesRatio}
	return a.runFrames(c, trace, "pictures", "file", func(f *frameRun) error {
		err := ziptree.Each(f.ctx, in, in.Size(), limits,
			func(files int) error { f.setTotal(int64(files)); return nil },
			func(name string, contents io.Reader) error {
				fr, failed, err := a.readPicture(contents)
				if err != nil {
					return err
				}
				return f.submit(fr, name, failed)
			})
		var broken *ziptree.Error
		if errors.As(err, &broken) {
			code := stream.InvalidArgument
			if broken.Large {
				code = stream.TooLarge
			}
			return stream.Errorf(code, "input", "%w", err)
		}
		return err
	})
}

// readPicture reads a file of an archive. failed is the reason why the file is no frame; err ends the task.
func (a *Adapter) readPicture(r io.Reader) (f stream.Frame, failed, err error) {
	most := a.opts.Media.MaxBody
	data, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return f, nil, err
	}
	if len(data) > most {
		return f, stream.Errorf(stream.TooLarge, "limits.max_body", "the file has more than %d bytes", most), nil
	}
	if f.Codec, failed = frames.Picture(data); failed != nil {
		return f, failed, nil
	}
	f.Lease, failed = a.gate.Memory().Lease(len(data))
	if errors.Is(failed, buf.ErrBudget) {
		return f, ingest.DropError(stream.Memory), nil
	} else if failed != nil {
		return f, nil, failed
	}
	f.Payload = f.Lease.Bytes()
	copy(f.Payload, data)
	return f, nil, nil
}
