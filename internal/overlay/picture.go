package overlay

import (
	"bufio"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// pictures are the encoders by file extension.
var pictures = map[string]func(io.Writer, image.Image) error{
	".png":  png.Encode,
	".jpg":  encodeJPEG,
	".jpeg": encodeJPEG,
}

func encodeJPEG(w io.Writer, img image.Image) error {
	return jpeg.Encode(w, img, &jpeg.Options{Quality: 92})
}

// CheckPicture returns an error when WritePicture cannot write a file of this name.
func CheckPicture(file string) error {
	if pictures[strings.ToLower(filepath.Ext(file))] == nil {
		return fmt.Errorf("overlay: %s: want a name that ends in .png or .jpg", file)
	}
	return nil
}

// WritePicture writes img as PNG or JPEG, by the file's extension. An
// existing file is replaced once the new one is complete.
func WritePicture(file string, img image.Image) error {
	if err := CheckPicture(file); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".part-*"+filepath.Ext(file))
	if err != nil {
		return fmt.Errorf("overlay: %s cannot be written: %w", file, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // no such file after the rename
	b := bufio.NewWriter(f)
	err = pictures[strings.ToLower(filepath.Ext(file))](b, img)
	err = errors.Join(err, b.Flush(), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("overlay: %s cannot be written: %w", file, err)
	}
	return nil
}
