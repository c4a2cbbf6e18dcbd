package codec

// Fixed-point BT.601, 16 bits of fraction; the constants come from JFIF (full range) and Recommendation BT.601
// (limited range: luma 16..235, chroma 16..240).

func clamp(v int32) byte {
	if uint32(v) <= 255 {
		return byte(v)
	}
	if v < 0 {
		return 0
	}
	return 255
}

const half = 1 << 15

func ycbcrRow(r, g, b, y, cb, cr []byte) {
	n := len(y)
	r, g, b, cb, cr = r[:n], g[:n], b[:n], cb[:n], cr[:n]
	for i, l := range y {
		yy := int32(l)<<16 + half
		u, v := int32(cb[i])-128, int32(cr[i])-128
		r[i] = clamp((yy + 91881*v) >> 16)
		g[i] = clamp((yy - 22554*u - 46802*v) >> 16)
		b[i] = clamp((yy + 116130*u) >> 16)
	}
}

func ycbcrLimitedRow(r, g, b, y, cb, cr []byte) {
	n := len(y)
	r, g, b, cb, cr = r[:n], g[:n], b[:n], cb[:n], cr[:n]
	for i, l := range y {
		yy := 76309*(int32(l)-16) + half
		u, v := int32(cb[i])-128, int32(cr[i])-128
		r[i] = clamp((yy + 104597*v) >> 16)
		g[i] = clamp((yy - 25675*u - 53279*v) >> 16)
		b[i] = clamp((yy + 132201*u) >> 16)
	}
}

func lumaRow(out, r, g, b []byte) {
	n := len(out)
	r, g, b = r[:n], g[:n], b[:n]
	for i := range out {
		out[i] = byte((19595*uint32(r[i]) + 38470*uint32(g[i]) + 7471*uint32(b[i]) + half) >> 16)
	}
}

// scaleRow writes v*k/255; with flip, (255-v)*(255-k)/255.
func scaleRow(out, v, k []byte, flip bool) {
	n := len(out)
	v, k = v[:n], k[:n]
	x := byte(0)
	if flip {
		x = 255
	}
	for i := range out {
		out[i] = byte((uint32(v[i]^x)*uint32(k[i]^x) + 127) / 255)
	}
}

// premultiply composites 8-bit RGBA on black, in place.
func premultiply(pix []byte) {
	for i := 0; i+3 < len(pix); i += 4 {
		p := pix[i : i+4 : i+4]
		if a := uint32(p[3]); a != 255 {
			p[0] = byte((uint32(p[0])*a + 127) / 255)
			p[1] = byte((uint32(p[1])*a + 127) / 255)
			p[2] = byte((uint32(p[2])*a + 127) / 255)
		}
	}
}
