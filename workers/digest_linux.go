package workers

import "syscall"

// changed returns when a file was written and when its entry was changed.
func changed(st *syscall.Stat_t) (written, entry syscall.Timespec) { return st.Mtim, st.Ctim }
