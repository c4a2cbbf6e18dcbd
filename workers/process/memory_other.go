//go:build !linux

package process

type family struct{}

func familyOf(int) family           { return family{} }
func (family) residentBytes() int64 { return 0 }
func oomFile(string, int) string    { return "" }
func oomCount(string) int64         { return -1 }
func keepDescriptors()              {}
