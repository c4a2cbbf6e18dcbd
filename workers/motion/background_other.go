//go:build !amd64

package motion

func compare(px []byte, mean []uint16, noise []uint8, light uint64, least,
	share int32) (word uint64, seen, expected int32) {
	return compareEach(px, mean, noise, light, least, share)
}

func estimate(px []byte, mean []uint16, noise []uint8, word uint64) {
	estimateEach(px, mean, noise, word)
}
