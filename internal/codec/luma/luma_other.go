//go:build !amd64

package luma

func vectors(_, _ []byte) int { return 0 }
