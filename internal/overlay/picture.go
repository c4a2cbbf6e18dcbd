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

var pictures = map[string]func(io.Writer, image.Image) error{
	".png":  png.Encode,
	".jpg":  encodeJPEG,
	".jpeg": encodeJPEG,
}

func encodeJPEG(w io.Writer, img image.Image) error {
	return jpeg.Encode(w, img, &jpeg.Options{Quality: 92})
}

// CheckPicture says whether file's name is one that WritePicture takes.
func CheckPicture(file string) error {
	if pictures[strings.ToLower(filepath.Ext(file))] == nil {
		return fmt.Errorf("overlay: %s is no name of a picture: want one that ends in .png or .jpg", file)
	}
	return nil
}

// WritePicture writes img as PNG or JPEG, by the file's extension. The file is
// replaced when the new one is whole.
func WritePicture(file string, img image.Image) error {
	if err := CheckPicture(file); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".part-*"+filepath.Ext(file))
	if err != nil {
		return fmt.Errorf("overlay: %s cannot be written: %w", file, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // nothing is there after the rename
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
