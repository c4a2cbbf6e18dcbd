#include "textflag.h"

// func chunksUint8(src *byte, chunks int, dst *byte, room int, with *vectors) (read, n int)
//
// One round reads 32 characters. The registers have, for each of them: Y0 it, Y1 to Y3 the
// one, two and three characters before it. A comma's three characters before it are its
// number, so the number is computed at each place and kept at the commas.
TEXT ·chunksUint8(SB), NOSPLIT, $0-56
	MOVQ src+0(FP), SI
	MOVQ chunks+8(FP), CX
	MOVQ dst+16(FP), DI
	MOVQ room+24(FP), DX
	MOVQ with+32(FP), R8
	LEAQ -16(DI)(DX*1), DX // a round writes at most 16 bytes
	VMOVDQU 0(R8), Y15     // moves digits to the largest signed bytes
	VMOVDQU 32(R8), Y14    // and this is the one below them
	VMOVDQU 64(R8), Y13    // commas
	VMOVDQU 96(R8), Y12    // spaces
	VMOVDQU 128(R8), Y11   // zeros
	VMOVDQU 160(R8), Y10   // ten times the index
	VMOVDQU 192(R8), Y9    // a hundred times the index
	VMOVDQU 224(R8), Y8    // 255 for indexes that are not a first digit of three: all but 1 and 2
	LEAQ 256(R8), R8       // moves the bytes of a mask to the front
	XORQ R9, R9            // rounds

round:
	CMPQ R9, CX
	JGE  done
	CMPQ DI, DX
	JG   done
	VMOVDQU 0(SI), Y0
	VMOVDQU -1(SI), Y1
	VMOVDQU -2(SI), Y2
	VMOVDQU -3(SI), Y3

	// Y0: it is a digit, a space after a comma, or a comma after a digit. Y4: it is a comma.
	VPCMPEQB Y13, Y0, Y4
	VPCMPEQB Y12, Y0, Y5
	VPCMPEQB Y13, Y1, Y6
	VPAND    Y6, Y5, Y5
	VPADDB   Y15, Y0, Y0
	VPCMPGTB Y14, Y0, Y0
	VPOR     Y5, Y0, Y0
	VPADDB   Y15, Y1, Y6
	VPCMPGTB Y14, Y6, Y6
	VPAND    Y4, Y6, Y6
	VPOR     Y6, Y0, Y0

	// Y1, Y5, Y6: the values of the three before. Y2, Y3: the second and third are digits.
	VPSUBB   Y11, Y1, Y1
	VPSUBB   Y11, Y2, Y5
	VPSUBB   Y11, Y3, Y6
	VPADDB   Y15, Y2, Y2
	VPCMPGTB Y14, Y2, Y2
	VPADDB   Y15, Y3, Y3
	VPCMPGTB Y14, Y3, Y3

	// Y1: units and tens. A comma or space looked up in a table is 0. Y5: of two digits, the
	// first is a zero.
	VPSHUFB  Y5, Y10, Y7
	VPADDB   Y7, Y1, Y1
	VPXOR    Y7, Y7, Y7
	VPCMPEQB Y7, Y5, Y5
	VPANDN   Y5, Y3, Y5

	// Y1: the number. Y7: the addition of the hundreds did not overflow.
	VPSHUFB  Y6, Y9, Y7
	VPAND    Y2, Y7, Y7
	VPADDB   Y7, Y1, Y1
	VPMAXUB  Y7, Y1, Y7
	VPCMPEQB Y1, Y7, Y7

	// Y5: it is not a number, for one of these reasons: a wrong first digit of three, or a
	// fourth digit, or one above.
	VPSHUFB  Y6, Y8, Y6
	VPAND    Y2, Y6, Y6
	VPOR     Y6, Y5, Y5
	VMOVDQU  -4(SI), Y6
	VPADDB   Y15, Y6, Y6
	VPCMPGTB Y14, Y6, Y6
	VPAND    Y3, Y6, Y6
	VPAND    Y2, Y6, Y6
	VPOR     Y6, Y5, Y5
	VPANDN   Y7, Y5, Y5

	// All characters must be right, and commas must follow numbers.
	VPANDN    Y4, Y5, Y5
	VPANDN    Y0, Y5, Y5
	VPMOVMSKB Y5, AX
	CMPL      AX, $-1
	JNE       done

	// Of each 8 places at most 4 are commas, whose numbers are moved to the front.
	VPMOVMSKB    Y4, AX
	VEXTRACTI128 $1, Y1, X3
	VPSRLDQ      $8, X1, X2
	VPSRLDQ      $8, X3, X4
	MOVBLZX      AX, BX
	VPSHUFB      (R8)(BX*8), X1, X1
	VMOVD        X1, (DI)
	POPCNTL      BX, BX
	ADDQ         BX, DI
	SHRL         $8, AX
	MOVBLZX      AX, BX
	VPSHUFB      (R8)(BX*8), X2, X2
	VMOVD        X2, (DI)
	POPCNTL      BX, BX
	ADDQ         BX, DI
	SHRL         $8, AX
	MOVBLZX      AX, BX
	VPSHUFB      (R8)(BX*8), X3, X3
	VMOVD        X3, (DI)
	POPCNTL      BX, BX
	ADDQ         BX, DI
	SHRL         $8, AX
	VPSHUFB      (R8)(AX*8), X4, X4
	VMOVD        X4, (DI)
	POPCNTL      AX, AX
	ADDQ         AX, DI

	ADDQ $32, SI
	INCQ R9
	JMP  round

done:
	VZEROUPPER
	SUBQ dst+16(FP), DI
	MOVQ R9, read+40(FP)
	MOVQ DI, n+48(FP)
	RET
