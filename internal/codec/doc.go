// Package codec decodes pictures into the pixels of a model's input.
//
// The package owns: telling JPEG, PNG and WebP apart by content, reading headers under a size limit, EXIF
// orientation, decoding, resizing, colour conversion and normalisation, all written straight into a slice of the
// caller (the picture's row of a batch), and the mapping from target pixels back to pixels of the frame as sent. Raw
// frames (RGB24, NV12, gray) are converted the same way.
//
// The package must not know: streams, batches, models, protocols or settings files. The package starts no goroutine.
//
// Every picture takes the same three steps, whatever the picture's kind and the JPEG library of the build, so that
// the same picture gives the same pixels:
//
//  1. shrink by 8, 4, 2 or 1, the most that leaves at least the target size on both
//     axes (for a JPEG inside its decoder, at less cost than a full decode; for other
//     pictures by averaging boxes of pixels, for a PNG while its rows are decoded, for a
//     WebP in libwebp);
//  2. sample at the target size, bilinear, in the picture's own colour model;
//  3. convert colours at the target size and write, rotated upright.
//
// With the build tag turbojpeg, JPEG goes through libjpeg-turbo (cgo); without the tag, through image/jpeg, sampling
// the YCbCr planes directly. With the build tag libwebp, WebP goes through libwebp, otherwise through x/image/webp.
package codec
