package modelsource

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"

	"millrace/internal/ctxio"
	"millrace/internal/ziptree"
)

// maxRatio is the greatest number of unpacked bytes for each byte of a zip archive.
const maxRatio = 1000

// unpackArchive unpacks an archive of an address.
func unpackArchive(ctx context.Context, part, address string, w *work) error {
	f, err := os.Open(part)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	root, err := makeRoot(w.tree)
	if err != nil {
		return err
	}
	defer root.Close()
	if v, err := url.Parse(address); err == nil && strings.HasSuffix(strings.ToLower(v.Path), ".zip") {
		err := ziptree.Extract(ctx, root, f, st.Size(), ziptree.Limits{Bytes: w.max, Files: maxFiles, Ratio: maxRatio})
		if err != nil {
			return fmt.Errorf("the archive: %w", err)
		}
		return nil
	}
	_, err = untar(ctx, f, root, w.max)
	return err
}

func makeRoot(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// untar unpacks a tar archive, with or without gzip, of at most limit bytes. Only files and folders are allowed. untar
// returns the bytes of the files.
func untar(ctx context.Context, from io.Reader, root *os.Root, limit int64) (size int64, err error) {
	in := bufio.NewReader(ctxio.Reader(ctx, from))
	if start, _ := in.Peek(2); len(start) == 2 && start[0] == 0x1f && start[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return 0, fmt.Errorf("the archive: %w", err)
		}
		defer z.Close()
		in = bufio.NewReader(z)
	}
	entries := 0
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && entries == 0:
			return 0, errors.New("the archive is empty, or no tar archive")
		case errors.Is(err, io.EOF):
			return size, nil
		case err != nil:
			return 0, fmt.Errorf("the archive: %w", err)
		}
		if entries++; entries > maxFiles {
			return 0, fmt.Errorf("the archive has more than %d files", maxFiles)
		}
		name := path.Clean(h.Name)
		if path.IsAbs(h.Name) || !fs.ValidPath(name) || strings.Contains(name, `\`) {
			return 0, fmt.Errorf("the archive has the path %.200q, which leads out of the archive", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o700)
		case tar.TypeReg:
			if size += h.Size; size > limit {
				return 0, tooLarge(limit)
			}
			err = untarFile(root, name, h, r)
		case tar.TypeXGlobalHeader:
		default:
			err = fmt.Errorf("the archive has %.200q, which is neither a file nor a folder", h.Name)
		}
		if err != nil {
			return 0, err
		}
	}
}

func untarFile(root *os.Root, name string, h *tar.Header, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if h.Mode&0o111 != 0 {
		mode = 0o700
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
