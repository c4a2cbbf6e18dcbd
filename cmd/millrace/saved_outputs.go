package main

import (
	"encoding/binary"
	"fmt"
	"image"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/client"
	"millrace/internal/codec"
	"millrace/internal/newfile"
	"millrace/internal/overlay"
	"millrace/stream"
)

// savedOutputs are the files for outputs saved by infer.
type savedOutputs struct {
	flags []string // each OUTPUT=FILE
	list  []saved
}

// saved is a file with the output to save.
type saved struct{ output, file string }

// open checks the given flags. files are the files to send; many = there may be several answers.
func (s *savedOutputs) open(files []string, many bool) error {
	if many && len(s.flags) > 0 {
		return usagef("--save: is for one picture or request: send the pictures one by one")
	}
	for _, text := range s.flags {
		output, file, ok := strings.Cut(text, "=")
		if !ok || output == "" || file == "" || file == "-" {
			return usagef("--save: %q is not OUTPUT=FILE", text)
		}
		for _, other := range s.list {
			if filepath.Clean(other.file) == filepath.Clean(file) {
				return usagef("--save: %s is given twice", file)
			}
		}
		for _, sent := range files {
			a, errA := os.Stat(sent)
			b, errB := os.Stat(file)
			if errA == nil && errB == nil && os.SameFile(a, b) {
				return usagef("--save: would replace %s, which is sent: give another name", sent)
			}
		}
		s.list = append(s.list, saved{output, file})
	}
	return nil
}

// outputs returns the names of the outputs to save.
func (s *savedOutputs) outputs() (names []string) {
	for _, to := range s.list {
		names = append(names, to.output)
	}
	return names
}

// write writes the outputs of an answer, and returns a line about each file.
func (s *savedOutputs) write(a *client.Answer) (written string, err error) {
	for _, to := range s.list {
		var names []string
		var t *stream.Tensor
		for i := range a.Outputs {
			if names = append(names, a.Outputs[i].Name); names[i] == to.output {
				t = &a.Outputs[i]
			}
		}
		if t == nil {
			return written, fmt.Errorf("--save: the answer of model %s has no output %s: it has %s", a.Model,
				to.output, strings.Join(names, ", "))
		}
		form, err := saveTensor(to.file, t)
		if err != nil {
			return written, fmt.Errorf("--save %s: %w", to.output, err)
		}
		written += fmt.Sprintf("saved %s as %s: %s\n", to.output, to.file, form)
	}
	return written, nil
}

// saveTensor writes a tensor in the form of the file name's ending: a BYTES element unchanged, pixels as PNG or JPEG,
// other tensors as .npy. saveTensor returns the form.
func saveTensor(file string, t *stream.Tensor) (form string, err error) {
	ending := strings.ToLower(filepath.Ext(file))
	what := fmt.Sprintf("the output is %s %v", t.Datatype, t.Shape)
	if t.Datatype == stream.Bytes {
		return saveElement(file, ending, what, t)
	}
	if ending == ".npy" {
		return "numbers in numpy's format", newfile.Write(file, func(w io.Writer) error { return writeNPY(w, t) })
	}
	img := pictureOf(t)
	switch {
	case img != nil && overlay.CheckPicture(file) == nil:
		return fmt.Sprintf("a picture of %dx%d", img.Bounds().Dx(), img.Bounds().Dy()), overlay.WritePicture(file, img)
	case img != nil:
		return "", fmt.Errorf("%s, a picture: give a name that ends in .png, .jpg or .npy, not %s", what, file)
	}
	return "", fmt.Errorf("%s: give a name that ends in .npy, not %s", what, file)
}

// otherPictures are file name endings of unsupported picture formats.
var otherPictures = []string{".avif", ".bmp", ".gif", ".heic", ".heif", ".ico", ".jp2", ".jxl", ".pbm", ".pgm", ".ppm",
	".psd", ".svg", ".tga", ".tif", ".tiff"}

// saveElement writes the only element of a tensor of BYTES, and returns the form of the file.
func saveElement(file, ending, what string, t *stream.Tensor) (form string, err error) {
	list := elements(t)
	if len(list) != 1 {
		return "", fmt.Errorf("%s, %d elements, and a file gets one: --json prints them", what, len(list))
	}
	kind := codec.Sniff(list[0])
	named := strings.TrimPrefix(strings.Replace(ending, "jpg", "jpeg", 1), ".")
	if kind != codec.Unknown && named != kind.String() &&
		(isPictureName(file) || slices.Contains(otherPictures, ending) || ending == ".npy") {
		return "", fmt.Errorf("the output is a picture of type %s, which is saved as it is: give a name that ends "+
			"in .%s, not %s", kind, endingOf(kind), file)
	}
	if kind == codec.Unknown && isPictureName(file) {
		return "", fmt.Errorf("the output is %d bytes that are no JPEG, PNG or WebP picture, and are saved as they "+
			"are: give a name with another ending, not %s", len(list[0]), file)
	}
	if ending == ".npy" {
		return "", fmt.Errorf("%s, whose element is saved as it is, not as .npy: give a name with another ending, "+
			"not %s", what, file)
	}
	if form = fmt.Sprintf("%d bytes", len(list[0])); kind != codec.Unknown {
		form = fmt.Sprintf("a picture of type %s, %s", kind, form)
	}
	return form, newfile.Write(file, func(w io.Writer) error {
		_, err := w.Write(list[0])
		return err
	})
}

// endingOf returns the ending of names of pictures of a kind.
func endingOf(kind codec.Kind) string {
	if kind == codec.JPEG {
		return "jpg"
	}
	return kind.String()
}

// elements returns the elements of a tensor of BYTES; the data have been checked.
func elements(t *stream.Tensor) (list [][]byte) {
	for data := t.Data; len(data) >= 4; {
		end := 4 + int(binary.LittleEndian.Uint32(data))
		list, data = append(list, data[4:end]), data[end:]
	}
	return list
}

// pictureOf returns a tensor of pixels as a picture: UINT8 [height, width, 3] in RGB or [height, width, 1],
// optionally with a batch axis of 1 in front; nil for other tensors.
func pictureOf(t *stream.Tensor) image.Image {
	shape := t.Shape
	if len(shape) == 4 && shape[0] == 1 {
		shape = shape[1:]
	}
	if t.Datatype != stream.Uint8 || len(shape) != 3 || shape[0] < 1 || shape[1] < 1 {
		return nil
	}
	at := image.Rect(0, 0, shape[1], shape[0])
	switch shape[2] {
	case 1:
		return &image.Gray{Pix: t.Data, Stride: shape[1], Rect: at}
	case 3:
		img := image.NewNRGBA(at)
		for i := range len(t.Data) / 3 {
			copy(img.Pix[4*i:], t.Data[3*i:3*i+3])
			img.Pix[4*i+3] = 0xff
		}
		return img
	}
	return nil
}

// npyTypes maps datatypes to the types of numpy. numpy has no BF16: BF16 numbers become FP32 exactly.
var npyTypes = map[stream.Datatype]string{
	stream.Bool: "|b1", stream.Uint8: "|u1", stream.Int8: "|i1", stream.Uint16: "<u2", stream.Int16: "<i2",
	stream.Uint32: "<u4", stream.Int32: "<i4",
	stream.Uint64: "<u8", stream.Int64: "<i8", stream.Float16: "<f2", stream.Float32: "<f4", stream.Float64: "<f8",
}

// writeNPY writes a tensor of numbers in the format of numpy.save: a header with a length that is a multiple of 64,
// and the elements.
func writeNPY(w io.Writer, t *stream.Tensor) error {
	if t.Datatype == stream.BFloat {
		t = toFloat32(t)
	}
	shape := ""
	for _, n := range t.Shape {
		shape += fmt.Sprintf("%d,", n)
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", npyTypes[t.Datatype], shape)
	const before = 10 // the magic, the version, and the length of the header
	header += strings.Repeat(" ", 63-(before+len(header))%64) + "\n"
	head := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	if _, err := w.Write(append(head, header...)); err != nil {
		return err
	}
	_, err := w.Write(t.Data)
	return err
}

// toFloat32 returns a tensor of FP16 or BF16 as FP32, without loss.
func toFloat32(t *stream.Tensor) *stream.Tensor {
	out := stream.Tensor{Name: t.Name, Datatype: stream.Float32, Shape: t.Shape}
	for i := 0; i+1 < len(t.Data); i += 2 {
		bits := binary.LittleEndian.Uint16(t.Data[i:])
		v := math.Float32frombits(uint32(bits) << 16)
		if t.Datatype == stream.Float16 {
			v = stream.HalfToFloat32(bits)
		}
		out.Data = stream.AppendFloat32(out.Data, v)
	}
	return &out
}
