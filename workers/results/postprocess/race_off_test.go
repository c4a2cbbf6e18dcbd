//go:build !race

package postprocess

const racing = false
