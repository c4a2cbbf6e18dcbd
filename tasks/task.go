package tasks

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"

	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// State is the state of a task.
type State string

// The states. A task ends in Finished, Failed, Cancelled or Expired, and stays there until the task is deleted or, by
// Retry, queued again.
const (
	Queued    State = "queued"
	Running   State = "running"
	Finished  State = "finished"
	Failed    State = "failed"
	Cancelled State = "cancelled"
	Expired   State = "expired" // the time Expires came before a consumer began the task
)

// States lists the states in the order in which a task passes through them.
var States = []State{Queued, Running, Finished, Failed, Cancelled, Expired}

// Ended reports whether the state is final.
func (s State) Ended() bool { return s != Queued && s != Running }

// Task is the durable record of one task. Times are UTC; a zero time is unset.
type Task struct {
	ID       string `json:"id"` // 32 hexadecimal digits, of which the first 12 are the time of the submission
	Model    string `json:"model"`
	Version  string `json:"version,omitempty"`  // "" = the version that the model's weights choose
	Kind     string `json:"kind,omitempty"`     // of the input; "" = by the media type
	Annotate string `json:"annotate,omitempty"` // mp4: the result is the video with the results drawn over the frames
	Owner    string `json:"owner,omitempty"`    // the account that submitted the task
	Key      string `json:"key,omitempty"`      // the idempotency key of the submission
	Priority int    `json:"priority,omitempty"`
	Trace    string `json:"traceparent,omitempty"` // the trace context of the submission, which each attempt goes on with

	State       State     `json:"state"`
	Attempt     int       `json:"attempt"`            // of the newest claim; 0 = none
	Attempts    int       `json:"attempts"`           // allowed after a submission or a retry
	LastAttempt int       `json:"last_attempt"`       // the attempt after which the task fails
	Consumer    string    `json:"consumer,omitempty"` // of the newest claim
	Claimant    string    `json:"claimant,omitempty"` // the account of a consumer on another host; "" = of this server
	Created     time.Time `json:"created"`
	Queued      time.Time `json:"queued,omitzero"`     // the newest begin of waiting
	NotBefore   time.Time `json:"not_before,omitzero"` // earliest begin; after a failed attempt, the end of the wait
	Expires     time.Time `json:"expires,omitzero"`    // a task that nobody has begun expires
	Started     time.Time `json:"started,omitzero"`    // of the newest attempt
	Ended       time.Time `json:"ended,omitzero"`
	Retention   Seconds   `json:"retention,omitempty"` // from Ended to the deletion; 0 = the setting

	Webhook *Webhook `json:"webhook,omitempty"` // gets the task after the end

	Input    File     `json:"input"`
	Result   *File    `json:"result,omitempty"`
	Error    *Failure `json:"error,omitempty"` // of the newest failed attempt
	Progress Progress `json:"progress,omitzero"`
	LogBytes int64    `json:"log_bytes,omitempty"` // of the kept logs, at the end of the newest attempt

	inputSmall, resultSmall bool // the bytes are in the record
}

// recordBytes is what the record of a task counts as, beside the files.
const recordBytes = 1 << 10

// bytes returns the bytes of the record and the files of the task.
func (t *Task) bytes() int64 {
	n := recordBytes + t.Input.Size + t.LogBytes
	if t.Result != nil {
		n += t.Result.Size
	}
	return n
}

// Seconds is a duration in whole seconds.
type Seconds int64

// Duration returns the duration.
func (s Seconds) Duration() time.Duration { return time.Duration(s) * time.Second }

// File is a stored input or result.
type File struct {
	blob.Info
	Type string `json:"type,omitempty"` // media type
	Name string `json:"name,omitempty"` // of the client's file
	Head string `json:"head,omitempty"` // length of the JSON in front of binary tensors
}

// Failure says why an attempt failed.
type Failure struct {
	Code    string `json:"code"` // a code of every protocol, such as invalid_argument
	Message string `json:"message"`
}

// Progress is how far the newest attempt is.
type Progress struct {
	Done  int64  `json:"done"`
	Total int64  `json:"total,omitempty"` // 0 = unknown
	Unit  string `json:"unit,omitempty"`  // of both numbers, such as frames
}

// maxUnit is the longest unit.
const maxUnit = 32

// Check refuses a progress that no client should get.
func (p Progress) Check() error {
	if p.Done < 0 || p.Total < 0 || len(p.Unit) > maxUnit || strings.ContainsFunc(p.Unit, unicode.IsControl) {
		return coded.Errorf(coded.InvalidArgument, "progress",
			"has a negative number, or a unit that is longer than %d bytes or has control characters", maxUnit)
	}
	return nil
}

// newID returns an id for a task submitted at a time. Ids sort by the time of the submission.
func newID(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // never fails
	ms := uint64(now.UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (8 * (5 - i)))
	}
	return hex.EncodeToString(b[:])
}

// submitted returns the time of the submission in an id; the zero time if the text is no id.
func submitted(id string) time.Time {
	if CheckID(id) != nil {
		return time.Time{}
	}
	b, _ := hex.DecodeString("0000" + id[:12]) // CheckID has seen the digits
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b)))
}

// CheckID refuses texts that are no id of a task.
func CheckID(id string) error {
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return coded.Errorf(coded.NotFound, "", "there is no task %.40q: an id has 32 hexadecimal digits", id)
	}
	return nil
}

// folder returns the key below which all files of a task are stored.
func folder(id string) string { return id[len(id)-2:] + "/" + id }

// inputKey and resultKey return the keys of the files of a task. Each attempt has a result of its own, so that a late
// attempt cannot replace the result of another attempt.
func inputKey(id string) string { return folder(id) + "/" + inputName }

// inputName is the name of the input in the folder of a task.
const inputName = "input"

func resultKey(id string, attempt int) string {
	return fmt.Sprintf("%s/result-%d", folder(id), attempt)
}
