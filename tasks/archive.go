package tasks

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"time"

	"millrace/tasks/blob"
)

// An archive is a tar stream. The first file, manifest.json, is a Manifest. For each task, the file ID/task.json is an
// archivedTask, and the files ID/NAME after it are its blobs in the order of archivedTask.Blobs.
const (
	manifestName  = "manifest.json"
	archiveFormat = 1
)

// Manifest begins an archive.
type Manifest struct {
	Format  int           `json:"format"`            // of the archive
	Data    int           `json:"data"`              // of the records
	Version string        `json:"version,omitempty"` // of Millrace, for people
	Created time.Time     `json:"created"`
	Tasks   map[State]int `json:"tasks"`
	Blobs   int           `json:"blobs"`
	Bytes   int64         `json:"bytes"` // of the blobs
}

// Total returns the number of tasks.
func (m *Manifest) Total() (n int) {
	for _, of := range m.Tasks {
		n += of
	}
	return n
}

// archivedTask is the record of a task with the names of its blobs.
type archivedTask struct {
	Task  Task           `json:"task"`
	Blobs []archivedBlob `json:"blobs"`
}

// archivedBlob is a blob of an archive.
type archivedBlob struct {
	Name string `json:"name"`
	blob.Info

	contents []byte // of a log; nil = in the store
}

// ArchiveReport is the result of Export or Import.
type ArchiveReport struct {
	Manifest
	Uploads int `json:"uploads_left_out"` // unfinished uploads, which an archive does not have
}

// ArchiveOptions say what Export and Import do.
type ArchiveOptions struct {
	Options
	Version  string                                      // of Millrace, for people
	Progress func(tasks int, bytes int64, all *Manifest) // called after each task; nil = nothing is called
}

// blobsOf returns the input and the result of a task.
func blobsOf(t *Task) []archivedBlob {
	list := []archivedBlob{{Name: inputName, Info: t.Input.Info}}
	if t.State == Finished && t.Result != nil {
		list = append(list, archivedBlob{Name: path.Base(resultKey(t.ID, t.Attempt)), Info: t.Result.Info})
	}
	return list
}

func infoOf(b []byte) blob.Info {
	sum := sha256.Sum256(b)
	return blob.Info{Size: int64(len(b)), SHA256: hex.EncodeToString(sum[:])}
}
