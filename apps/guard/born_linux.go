package guard

import (
	"encoding/hex"

	"golang.org/x/sys/unix"
)

// born returns the time of birth of a file in nanoseconds since 1970; 0 = the file system does not say.
func born(path string) int64 {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}

// handle returns the handle of a folder, as servers of NFS use: the inode with a generation. A new folder with the
// inode of a removed folder has another generation. "" = the file system gives no handle.
func handle(path string) string {
	const fid = 0x200 // AT_HANDLE_FID, also without support for NFS; Linux before 6.5 refuses the flag
	for _, flags := range []int{fid, 0} {
		if h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, flags); err == nil {
			return hex.EncodeToString(h.Bytes())
		}
	}
	return ""
}
