#include "textflag.h"

DATA laneBits<>+0(SB)/4, $1
DATA laneBits<>+4(SB)/4, $2
DATA laneBits<>+8(SB)/4, $4
DATA laneBits<>+12(SB)/4, $8
DATA laneBits<>+16(SB)/4, $16
DATA laneBits<>+20(SB)/4, $32
DATA laneBits<>+24(SB)/4, $64
DATA laneBits<>+28(SB)/4, $128
GLOBL laneBits<>(SB), RODATA|NOPTR, $32

// noiseFactor
DATA factors<>+0(SB)/8, $0x0068006800680068
DATA factors<>+8(SB)/8, $0x0068006800680068
DATA factors<>+16(SB)/8, $0x0068006800680068
DATA factors<>+24(SB)/8, $0x0068006800680068
GLOBL factors<>(SB), RODATA|NOPTR, $32

// func compareAVX2(px *byte, mean *uint16, noise *uint8, n int, delta, least, share int32) (word uint64, seen, expected int32)
//
// All numbers have 16 bits without a sign. A product is rounded down after half a unit was
// added; a negative one is a positive one that is rounded up after half was subtracted.
TEXT ·compareAVX2(SB), NOSPLIT, $0-64
	MOVQ px+0(FP), DI
	MOVQ mean+8(FP), SI
	MOVQ noise+16(FP), DX
	MOVQ n+24(FP), R9
	MOVL delta+32(FP), AX
	MOVL AX, BX
	SARL $31, BX
	XORL BX, AX
	SUBL BX, AX
	VMOVD AX, X8
	VPBROADCASTW X8, Y8 // the absolute delta
	VMOVD BX, X7
	VPBROADCASTD X7, Y7 // -1 when it is negative
	MOVL least+36(FP), AX
	VMOVD AX, X9
	VPBROADCASTW X9, Y9
	MOVL share+40(FP), AX
	VMOVD AX, X10
	VPBROADCASTW X10, Y10
	VPCMPEQW Y14, Y14, Y14
	VPSLLW $15, Y14, Y14  // half
	VPSUBW Y7, Y14, Y11   // the least fraction that is rounded up
	VPXOR Y12, Y12, Y12
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6
	XORQ R8, R8
	XORQ CX, CX

pixels:
	VPMOVZXBW (DI), Y0
	VMOVDQU (SI), Y1
	VPMULHUW Y8, Y1, Y2
	VPMULLW Y8, Y1, Y3
	VPMAXUW Y11, Y3, Y15
	VPCMPEQW Y3, Y15, Y15
	VPSUBW Y15, Y2, Y2
	VPANDN Y2, Y7, Y3
	VPADDUSW Y3, Y1, Y1
	VPAND Y7, Y2, Y2
	VPSUBW Y2, Y1, Y1       // p, the mean in the present light
	VPSLLW $8, Y0, Y2       // v, the pixel times 256
	VPSUBUSW Y1, Y2, Y3
	VPSUBUSW Y2, Y1, Y2
	VPOR Y2, Y3, Y2         // the absolute difference
	VPCMPEQW Y12, Y3, Y3    // -1 when v - p is not positive
	VPMOVZXBW (DX), Y15
	VPMULLW factors<>(SB), Y15, Y15
	VPMAXUW Y9, Y15, Y15
	VPSUBUSW Y15, Y2, Y15
	VPCMPEQW Y12, Y15, Y15  // -1 when it does not differ
	VPAND Y15, Y0, Y0
	VPSADBW Y12, Y0, Y0
	VPADDQ Y0, Y6, Y6
	VPMULLW Y10, Y2, Y0
	VPMULHUW Y10, Y2, Y2
	VPSLLW $4, Y2, Y2
	VPSRLW $12, Y0, Y13
	VPADDW Y13, Y2, Y2
	VPSLLW $4, Y0, Y0       // the fraction
	VPSUBW Y3, Y14, Y13
	VPMAXUW Y0, Y13, Y13
	VPCMPEQW Y0, Y13, Y13
	VPSUBW Y13, Y2, Y2
	VPXOR Y3, Y2, Y2
	VPSUBW Y3, Y2, Y2       // share of the difference
	VPAND Y15, Y2, Y2
	VPADDW Y2, Y1, Y2
	VMOVDQU Y2, (SI)
	VPAND Y15, Y1, Y1
	VPSADBW Y12, Y1, Y0     // high and low bytes
	VPADDQ Y0, Y5, Y5
	VPSRLW $8, Y1, Y1
	VPSADBW Y12, Y1, Y1     // high bytes
	VPADDQ Y1, Y4, Y4
	VEXTRACTI128 $1, Y15, X0
	VPACKSSWB X0, X15, X15
	VPMOVMSKB X15, AX
	XORL $0xffff, AX
	SHLQ CX, AX
	ORQ AX, R8
	ADDQ $16, CX
	ADDQ $16, DI
	ADDQ $32, SI
	ADDQ $16, DX
	SUBQ $16, R9
	JNZ pixels

	VEXTRACTI128 $1, Y6, X0
	VPADDQ X0, X6, X6
	VPSHUFD $0x4e, X6, X0
	VPADDQ X0, X6, X6
	VEXTRACTI128 $1, Y5, X0
	VPADDQ X0, X5, X5
	VPSHUFD $0x4e, X5, X0
	VPADDQ X0, X5, X5
	VEXTRACTI128 $1, Y4, X0
	VPADDQ X0, X4, X4
	VPSHUFD $0x4e, X4, X0
	VPADDQ X0, X4, X4
	MOVQ R8, word+48(FP)
	VMOVD X6, AX
	SHLL $8, AX
	MOVL AX, seen+56(FP)
	VMOVD X4, AX
	IMULL $255, AX
	VMOVD X5, BX
	ADDL BX, AX
	MOVL AX, expected+60(FP)
	VZEROUPPER
	RET

// func estimateAVX2(px *byte, mean *uint16, noise *uint8, n int, word uint64)
TEXT ·estimateAVX2(SB), NOSPLIT, $0-40
	MOVQ px+0(FP), DI
	MOVQ mean+8(FP), SI
	MOVQ noise+16(FP), DX
	MOVQ n+24(FP), R9
	MOVQ word+32(FP), R8
	VMOVDQU laneBits<>(SB), Y10
	VPXOR Y11, Y11, Y11
	VPCMPEQD Y9, Y9, Y9
	VPADDD Y9, Y9, Y9 // -2

pixels:
	VPMOVZXBD (DI), Y0
	VPSLLD $8, Y0, Y0
	VPMOVZXWD (SI), Y1
	VPSUBD Y1, Y0, Y2
	VPABSD Y2, Y2
	VPSRLD $4, Y2, Y2
	VPMOVZXBD (DX), Y4
	VPCMPGTD Y4, Y2, Y3 // -1 when the difference is the larger
	VPSLLD $2, Y3, Y3
	VPSUBD Y3, Y9, Y3   // the step, 2 or -2
	VMOVD R8, X5
	VPBROADCASTD X5, Y5
	VPAND Y10, Y5, Y5
	VPCMPEQD Y11, Y5, Y5 // -1 when it is not marked
	VPAND Y5, Y3, Y3
	VPADDD Y3, Y4, Y4
	VEXTRACTI128 $1, Y4, X2
	VPACKUSDW X2, X4, X4
	VPACKUSWB X4, X4, X4
	VMOVQ X4, (DX)
	SHRQ $8, R8
	ADDQ $8, DI
	ADDQ $16, SI
	ADDQ $8, DX
	SUBQ $8, R9
	JNZ pixels
	VZEROUPPER
	RET
