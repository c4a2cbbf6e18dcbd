package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Types of extension entries. Entries of an unknown type are skipped.
const (
	tlvTraceparent = 1
	tlvROI         = 2
	tlvParams      = 4

	tlvHead        = 3 // u8 type, u16 length
	roiLen         = 8
	traceparentMin = 55 // of version 00 of W3C trace context; later versions may be longer
)

// Ext is the extension of a media header. The zero value is an empty extension.
type Ext struct {
	Traceparent []byte    // a W3C traceparent as text; parse checks only the length; nil = none
	ROI         [4]uint16 // left, top, width, height in pixels of the frame as sent, if HasROI; not checked
	HasROI      bool
	Params      []byte // a JSON object, see ParseParams; nil = none
}

// parse reads the entries of ext; ext must not be empty.
func (x *Ext) parse(ext []byte) *Error {
	var seen byte // the known types are single bits
	for len(ext) > 0 {
		if len(ext) < tlvHead {
			return invalid(ErrTLVLen, "ext", fmt.Sprintf("ends after %d bytes of an entry's type and length", len(ext)))
		}
		typ, n := ext[0], int(binary.LittleEndian.Uint16(ext[1:]))
		if n > len(ext)-tlvHead {
			return invalid(ErrTLVLen, tlvName(typ), fmt.Sprintf("announces %d bytes, but %d follow", n,
				len(ext)-tlvHead))
		}
		switch typ {
		case tlvTraceparent, tlvROI, tlvParams:
			if seen&typ != 0 {
				return invalid(ErrTLVTwice, tlvName(typ), "is given twice")
			}
			seen |= typ
		}
		if err := x.take(typ, ext[tlvHead:tlvHead+n:tlvHead+n]); err != nil {
			return err
		}
		ext = ext[tlvHead+n:]
	}
	return nil
}

func (x *Ext) take(typ byte, value []byte) *Error {
	switch typ {
	case tlvTraceparent:
		// A malformed traceparent is ignored: W3C demands that no request fails because of a traceparent.
		if len(value) >= traceparentMin {
			x.Traceparent = value
		}
	case tlvROI:
		if len(value) != roiLen {
			return invalid(ErrTLVSize, tlvName(typ), fmt.Sprintf("has %d bytes: want %d", len(value), roiLen))
		}
		for i := range x.ROI {
			x.ROI[i] = binary.LittleEndian.Uint16(value[2*i:])
		}
		x.HasROI = true
	case tlvParams:
		x.Params = value
		return x.checkParams()
	}
	return nil
}

func (x *Ext) check() *Error {
	if x.Traceparent != nil {
		if err := x.checkTraceparent(); err != nil {
			return err
		}
	}
	if x.Params != nil {
		if err := x.checkParams(); err != nil {
			return err
		}
	}
	if n := x.size(); n > math.MaxUint16 {
		return tooLarge(ErrExtLen, "ext", fmt.Sprintf("has %d bytes: want at most %d; shorten the parameters", n,
			math.MaxUint16))
	}
	return nil
}

func (x *Ext) checkTraceparent() *Error {
	if n := len(x.Traceparent); n < traceparentMin {
		return invalid(ErrTLVSize, tlvName(tlvTraceparent),
			fmt.Sprintf("has %d bytes: want the text of a traceparent, at least %d", n, traceparentMin))
	}
	return nil
}

func (x *Ext) checkParams() *Error {
	if n := len(x.Params); n < len("{}") {
		return invalid(ErrTLVSize, tlvName(tlvParams), fmt.Sprintf("has %d bytes: want a JSON object", n))
	}
	return nil
}

func (x *Ext) size() (n int) {
	if x.Traceparent != nil {
		n += tlvHead + len(x.Traceparent)
	}
	if x.HasROI {
		n += tlvHead + roiLen
	}
	if x.Params != nil {
		n += tlvHead + len(x.Params)
	}
	return n
}

// put writes the entries in the order of their types; dst has their size.
func (x *Ext) put(dst []byte) {
	if x.Traceparent != nil {
		dst = dst[putEntry(dst, tlvTraceparent, x.Traceparent):]
	}
	if x.HasROI {
		var roi [roiLen]byte
		for i, v := range x.ROI {
			binary.LittleEndian.PutUint16(roi[2*i:], v)
		}
		dst = dst[putEntry(dst, tlvROI, roi[:]):]
	}
	if x.Params != nil {
		putEntry(dst, tlvParams, x.Params)
	}
}

func putEntry(dst []byte, typ byte, value []byte) int {
	dst[0] = typ
	binary.LittleEndian.PutUint16(dst[1:], uint16(len(value)))
	return tlvHead + copy(dst[tlvHead:], value)
}

func tlvName(typ byte) string {
	switch typ {
	case tlvTraceparent:
		return "ext.traceparent"
	case tlvROI:
		return "ext.roi"
	case tlvParams:
		return "ext.params"
	}
	return fmt.Sprintf("ext[type %d]", typ)
}
