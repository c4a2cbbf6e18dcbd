package overlay

import (
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"path/filepath"
	"strings"

	"millrace/internal/newfile"
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

// WritePicture writes img as PNG or JPEG, by the file's extension. An existing file is replaced once the new file is
// complete.
func WritePicture(file string, img image.Image) error {
	if err := CheckPicture(file); err != nil {
		return err
	}
	err := newfile.Write(file, func(w io.Writer) error { return pictures[strings.ToLower(filepath.Ext(file))](w, img) })
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	return nil
}
