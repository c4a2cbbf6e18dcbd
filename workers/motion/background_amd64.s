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

// func compareAVX2(px *byte, mean *uint16, noise *uint8, n int, delta, least, share int32) (word uint64, seen, expected int32)
TEXT ·compareAVX2(SB), NOSPLIT, $0-64
	MOVQ px+0(FP), DI
	MOVQ mean+8(FP), SI
	MOVQ noise+16(FP), DX
	MOVQ n+24(FP), R9
	MOVL delta+32(FP), AX
	VMOVD AX, X8
	VPBROADCASTD X8, Y8
	MOVL least+36(FP), AX
	VMOVD AX, X9
	VPBROADCASTD X9, Y9
	MOVL share+40(FP), AX
	VMOVD AX, X10
	VPBROADCASTD X10, Y10
	VPCMPEQD Y15, Y15, Y15
	VPSRLD $16, Y15, Y12 // the largest mean
	VPSRLD $31, Y15, Y15
	VPSLLD $15, Y15, Y11 // lightUnit/2
	VPSLLD $11, Y15, Y14 // 1<<(shareBits-1)
	MOVL $104, AX        // noiseFactor
	VMOVD AX, X13
	VPBROADCASTD X13, Y13
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7
	XORQ R8, R8
	XORQ CX, CX

pixels:
	VPMOVZXBD (DI), Y0
	VPSLLD $8, Y0, Y0   // v, the pixel times 256
	VPMOVZXWD (SI), Y1
	VPMULLD Y8, Y1, Y2
	VPADDD Y11, Y2, Y2
	VPSRAD $16, Y2, Y2
	VPADDD Y2, Y1, Y1
	VPMINSD Y12, Y1, Y1 // p, the mean in the present light
	VPSUBD Y1, Y0, Y2   // d = v - p
	VPABSD Y2, Y3
	VPMOVZXBD (DX), Y4
	VPMULLD Y13, Y4, Y4
	VPMAXSD Y9, Y4, Y4
	VPCMPGTD Y4, Y3, Y3 // far, -1 when it differs
	VMOVMSKPS Y3, AX
	SHLQ CX, AX
	ORQ AX, R8
	ADDQ $8, CX
	VPANDN Y0, Y3, Y5
	VPADDD Y5, Y6, Y6
	VPANDN Y1, Y3, Y5
	VPADDD Y5, Y7, Y7
	VPMULLD Y10, Y2, Y2
	VPADDD Y14, Y2, Y2
	VPSRAD $12, Y2, Y2
	VPANDN Y2, Y3, Y2
	VPADDD Y2, Y1, Y1
	VEXTRACTI128 $1, Y1, X2
	VPACKUSDW X2, X1, X1
	VMOVDQU X1, (SI)
	ADDQ $8, DI
	ADDQ $16, SI
	ADDQ $8, DX
	SUBQ $8, R9
	JNZ pixels

	VEXTRACTI128 $1, Y6, X0
	VPADDD X0, X6, X6
	VPSHUFD $0x4e, X6, X0
	VPADDD X0, X6, X6
	VPSHUFD $0xb1, X6, X0
	VPADDD X0, X6, X6
	VEXTRACTI128 $1, Y7, X0
	VPADDD X0, X7, X7
	VPSHUFD $0x4e, X7, X0
	VPADDD X0, X7, X7
	VPSHUFD $0xb1, X7, X0
	VPADDD X0, X7, X7
	MOVQ R8, word+48(FP)
	VMOVD X6, AX
	MOVL AX, seen+56(FP)
	VMOVD X7, AX
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
