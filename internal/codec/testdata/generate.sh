#!/bin/sh
# Makes the pictures of this folder: 48x40 pixels in four quadrants, red and green
# over blue and gray (200), in encodings that Go's own encoders do not write.
# Needs ffmpeg with libwebp, a C compiler and libjpeg's headers. The results are
# kept in the repository, so that the tests need none of these.
set -e
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ff() { ffmpeg -v error -y "$@"; }

ff -f lavfi -i color=red:s=24x20 -f lavfi -i color=lime:s=24x20 -f lavfi -i color=blue:s=24x20 -f lavfi -i color=0xC8C8C8:s=24x20 \
  -filter_complex "[0]format=rgb24[a];[1]format=rgb24[b];[2]format=rgb24[c];[3]format=rgb24[d];[a][b]hstack[x];[c][d]hstack[y];[x][y]vstack" \
  -frames:v 1 "$work/quad.png"
ff -i "$work/quad.png" -pix_fmt rgb24 -flags +ildct interlaced.png
ff -i "$work/quad.png" -c:v libwebp -quality 95 lossy.webp
ff -i "$work/quad.png" -c:v libwebp -lossless 1 lossless.webp
half="format=rgba,colorchannelmixer=aa=0.5"
ff -i "$work/quad.png" -vf "$half" -c:v libwebp -pix_fmt yuva420p -quality 95 alpha-lossy.webp
ff -i "$work/quad.png" -vf "$half" -c:v libwebp -pix_fmt bgra -lossless 1 alpha-lossless.webp

cat >"$work/jpeg.c" <<'C'
#include <stdio.h>
#include <string.h>
#include <jpeglib.h>
static void px(int x, int y, unsigned char *p) {
	static const unsigned char c[4][3] = {{255,0,0},{0,255,0},{0,0,255},{200,200,200}};
	memcpy(p, c[(y >= 20) * 2 + (x >= 24)], 3);
}
/* kind: 0 YCbCr, 1 RGB, 2 CMYK, 3 YCCK, 4 gray */
static void make(const char *name, int kind, int progressive, int h, int v, int restarts) {
	struct jpeg_compress_struct c; struct jpeg_error_mgr e; unsigned char row[48 * 4], *r = row;
	FILE *f = fopen(name, "wb");
	int cmyk = kind == 2 || kind == 3;
	c.err = jpeg_std_error(&e); jpeg_create_compress(&c); jpeg_stdio_dest(&c, f);
	c.image_width = 48; c.image_height = 40;
	c.input_components = cmyk ? 4 : kind == 4 ? 1 : 3;
	c.in_color_space = cmyk ? JCS_CMYK : kind == 4 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_set_defaults(&c);
	if (kind == 1) jpeg_set_colorspace(&c, JCS_RGB);
	if (kind == 2) jpeg_set_colorspace(&c, JCS_CMYK);
	if (kind == 3) jpeg_set_colorspace(&c, JCS_YCCK);
	jpeg_set_quality(&c, 95, TRUE);
	if (kind == 0) { c.comp_info[0].h_samp_factor = h; c.comp_info[0].v_samp_factor = v; }
	if (progressive) jpeg_simple_progression(&c);
	if (restarts) c.restart_interval = 1;
	jpeg_start_compress(&c, TRUE);
	for (int y = 0; y < 40; y++) {
		for (int x = 0; x < 48; x++) {
			unsigned char p[3]; px(x, y, p);
			if (cmyk) { /* inverted, as Adobe has it: all black in K stays 255 */
				memcpy(row + 4 * x, p, 3); row[4 * x + 3] = 255;
			} else if (kind == 4) row[x] = (299 * p[0] + 587 * p[1] + 114 * p[2] + 500) / 1000;
			else memcpy(row + 3 * x, p, 3);
		}
		jpeg_write_scanlines(&c, &r, 1);
	}
	jpeg_finish_compress(&c); fclose(f);
}
int main(void) {
	make("progressive.jpg", 0, 1, 2, 2, 0); make("restarts.jpg", 0, 0, 2, 2, 1);
	make("444.jpg", 0, 0, 1, 1, 0); make("422.jpg", 0, 0, 2, 1, 0); make("440.jpg", 0, 0, 1, 2, 0); make("411.jpg", 0, 0, 4, 1, 0);
	make("rgb.jpg", 1, 0, 1, 1, 0); make("cmyk.jpg", 2, 0, 1, 1, 0); make("ycck.jpg", 3, 0, 1, 1, 0); make("gray.jpg", 4, 0, 1, 1, 0);
	return 0;
}
C
cc -o "$work/jpeg" "$work/jpeg.c" -ljpeg
"$work/jpeg"
