package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"millrace/internal/filelock"
	"millrace/stream"
)

const (
	fileName = "events.db"
	lockName = "lock"
)

// form is the version of the database's tables. A database of a later form is refused.
const form = 1

const schema = `
CREATE TABLE events(
	seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at INTEGER NOT NULL, stream TEXT NOT NULL,
	model TEXT NOT NULL, type TEXT NOT NULL, rule TEXT NOT NULL, class TEXT NOT NULL, event BLOB NOT NULL);
CREATE INDEX events_at ON events(at);
CREATE INDEX events_stream ON events(stream, at);
CREATE TABLE states(stream TEXT NOT NULL, model TEXT NOT NULL, state BLOB NOT NULL, PRIMARY KEY(stream, model));
PRAGMA user_version = 1;`

// placesSchema has the places of cursors, in databases of earlier versions, too.
const placesSchema = `CREATE TABLE IF NOT EXISTS places(stream TEXT NOT NULL, name TEXT NOT NULL, seq INTEGER NOT NULL,
	waiting INTEGER NOT NULL, PRIMARY KEY(stream, name))`

// database is an open database, for this process alone.
type database struct {
	path    string
	lock    *os.File
	info    fs.FileInfo    // of the file, to notice its removal
	fresh   bool           // the database was empty
	db      *sql.DB        // one connection, to write and to read states: pages of events never hold up a write
	reads   *sql.DB        // for pages of events
	readers sync.WaitGroup // of both
}

// openDatabase opens the database of a folder. A database that is damaged, or that the caller knows as damaged, is
// renamed, and damaged becomes false. Only the newest damaged database is kept.
func openDatabase(o Options, damaged *bool) (*database, error) {
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(o.Folder, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.TryLock(lock); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("another process uses the folder (%w)", err)
	}
	d := &database{path: filepath.Join(o.Folder, fileName), lock: lock}
	if *damaged {
		err = errDamaged
	} else {
		err = d.open()
	}
	if isDamage(err) {
		aside := fmt.Sprintf("%s.damaged-%d", d.path, time.Now().UnixMilli())
		d.closeFiles()
		earlier, _ := filepath.Glob(d.path + ".damaged-*")
		if err := os.Rename(d.path, aside); err != nil {
			d.close()
			return nil, err
		}
		for _, name := range earlier {
			_ = os.Remove(name)
		}
		_ = os.Remove(d.path + "-shm")
		// The journal may have the newest events. A new database must not begin with the journal.
		if err := os.Rename(d.path+"-wal", aside+"-wal"); err != nil {
			_ = os.Remove(d.path + "-wal")
		}
		*damaged = false
		o.Log.Error("the database of events is damaged, and a new one begins: earlier events and counts are missing",
			"renamed", aside, "error", err)
		err = d.open()
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *database) open() (err error) {
	d.closeFiles()
	file := url.URL{Scheme: "file", OmitHost: true, Path: d.path}
	const all = "_pragma=busy_timeout(5000)&_pragma=cache_size(-4096)&_pragma=trusted_schema(OFF)"
	// auto_vacuum has an effect only before the first page is written.
	file.RawQuery = all + "&_pragma=auto_vacuum(2)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)" +
		fmt.Sprintf("&_pragma=journal_size_limit(%d)", maxJournal)
	if d.db, err = sql.Open("sqlite", file.String()); err != nil {
		return err
	}
	d.db.SetMaxOpenConns(1)
	file.RawQuery = all + "&_pragma=query_only(1)"
	if d.reads, err = sql.Open("sqlite", file.String()); err != nil {
		return err
	}
	d.reads.SetMaxOpenConns(maxReads)
	f, err := os.OpenFile(d.path, os.O_CREATE|os.O_RDWR, 0o600) // only the owner may read
	if err != nil {
		return err
	}
	d.info, err = f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	var version int
	if err := d.db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	switch {
	case version > form:
		return fmt.Errorf("%s was written by a later version of Millrace (form %d, this version knows %d)", d.path,
			version, form)
	case version < form:
		if _, err = d.db.Exec("BEGIN;" + schema + "COMMIT"); err != nil {
			return err
		}
		d.fresh = true
	}
	_, err = d.db.Exec(placesSchema)
	return err
}

// errDamaged is the error of a file known as damaged.
var errDamaged = errors.New("the file was damaged when it was used")

// isDamage reports whether an error says that the file is no intact database.
func isDamage(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return errors.Is(err, errDamaged)
	}
	code := e.Code() & 0xff
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

// present returns an error if the file was removed or replaced: SQLite would go on with a file without a name.
func (d *database) present(folder string) error {
	now, err := os.Stat(d.path)
	if err == nil && !os.SameFile(now, d.info) {
		err = fmt.Errorf("%s is another file than before", d.path)
	}
	if err != nil {
		return fmt.Errorf("the folder %s was changed: %w", folder, err)
	}
	return nil
}

// close closes the database after the queries of others.
func (d *database) close() {
	d.readers.Wait()
	d.closeFiles()
	_ = filelock.Close(d.lock)
}

func (d *database) closeFiles() {
	for _, db := range []*sql.DB{d.reads, d.db} {
		if db != nil {
			_ = db.Close() // everything that was written is committed
		}
	}
}

// write writes events, states and places of cursors in one transaction. An event that is in the database already
// changes nothing, and is in repeated. before is the number of the newest event before.
func (d *database) write(events []waiting, states map[stateKey][]byte, places []place,
	unfollowed map[placeKey]struct{}) (before, last int64, repeated map[int]bool, err error) {
	tx, err := d.db.Begin()
	if err != nil {
		return 0, 0, nil, err
	}
	defer func() { _ = tx.Rollback() }() // without effect after the commit
	if before, err = newest(tx); err != nil {
		return 0, 0, nil, err
	}
	repeated = map[int]bool{}
	err = d.writeRows(tx, events, repeated, states)
	if err == nil { // a repeated event takes a number, too
		last, err = newest(tx)
	}
	if err == nil {
		err = writePlaces(tx, events, repeated, places, unfollowed)
	}
	if err == nil {
		err = tx.Commit()
	}
	return before, last, repeated, err
}

// writePlaces writes the places of cursors, whose events are without the written events.
func writePlaces(tx *sql.Tx, events []waiting, repeated map[int]bool, places []place,
	unfollowed map[placeKey]struct{}) error {
	for k := range unfollowed {
		if _, err := tx.Exec("DELETE FROM places WHERE stream=? AND name=?", k.stream, k.name); err != nil {
			return err
		}
	}
	for _, p := range places {
		for i := range events {
			if events[i].event.Stream == p.stream && !repeated[i] {
				p.waiting++
			}
		}
		if _, err := tx.Exec("INSERT OR REPLACE INTO places VALUES(?,?,?,?)", p.stream, p.name, p.seq,
			p.waiting); err != nil {
			return err
		}
	}
	return nil
}

// newest returns the number of the newest event that the database has had.
func newest(tx interface {
	QueryRow(query string, args ...any) *sql.Row
}) (seq int64, err error) {
	err = tx.QueryRow("SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name='events'),0)").Scan(&seq)
	return seq, err
}

func (d *database) newest() (int64, error) { return newest(d.db) }

// place returns the place of a cursor.
func (d *database) place(stream, name string) (p place, found bool, err error) {
	err = d.db.QueryRow("SELECT seq,waiting FROM places WHERE stream=? AND name=?", stream, name).
		Scan(&p.seq, &p.waiting)
	if errors.Is(err, sql.ErrNoRows) {
		return p, false, nil
	}
	return p, err == nil, err
}

// count counts the events of a stream after a number.
func (d *database) count(stream string, seq int64) (n int, err error) {
	err = d.db.QueryRow("SELECT count(*) FROM events WHERE stream=? AND seq>?", stream, seq).Scan(&n)
	return n, err
}

// unread is count, and tells of which of the ids the database has an event after the number.
func (d *database) unread(stream string, seq int64, ids []string) (n int, found map[string]bool, err error) {
	if len(ids) == 0 {
		n, err = d.count(stream, seq)
		return n, nil, err
	}
	found = make(map[string]bool, len(ids))
	for _, id := range ids {
		found[id] = false
	}
	rows, err := d.db.Query("SELECT id FROM events WHERE stream=? AND seq>?", stream, seq)
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		var id string
		if err := rows.Scan(&id); err != nil {
			return 0, nil, err
		}
		if _, asked := found[id]; asked {
			found[id] = true
		}
	}
	return n, found, rows.Err()
}

// after returns up to limit events of a stream after a number, and the number up to which there are no further events.
func (d *database) after(ctx context.Context, stream string, seq int64, limit int) (list []Item, read int64,
	err error) {
	last, err := newest(d.reads)
	if err != nil {
		return nil, seq, err
	}
	// By number, not by the index of streams: the unread events are at the end.
	rows, err := d.reads.QueryContext(ctx, "SELECT seq,id,event FROM events WHERE seq>? AND seq<=? AND +stream=? "+
		"ORDER BY seq LIMIT ?", seq, last, stream, limit)
	if err != nil {
		return nil, seq, err
	}
	defer rows.Close()
	for rows.Next() {
		v := Item{in: d}
		if err := rows.Scan(&v.seq, &v.id, &v.Text); err != nil {
			return nil, seq, err
		}
		list = append(list, v)
	}
	if len(list) == limit {
		last = list[limit-1].seq
	}
	return list, last, rows.Err()
}

func (d *database) writeRows(tx *sql.Tx, events []waiting, repeated map[int]bool, states map[stateKey][]byte) error {
	var err error
	if len(events) > 0 {
		insert, err := tx.Prepare("INSERT INTO events(id,at,stream,model,type,rule,class,event) " +
			"VALUES(?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING")
		if err != nil {
			return err
		}
		defer insert.Close()
		for i := range events {
			w := &events[i]
			done, err := insert.Exec(w.event.ID, w.at, w.event.Stream, w.model, string(w.event.Type), w.event.Rule,
				w.event.Class, w.text)
			if err != nil {
				return err
			}
			if n, _ := done.RowsAffected(); n == 0 {
				repeated[i] = true
			}
		}
	}
	for _, removal := range []bool{true, false} { // a stream may be removed and added again
		for k, text := range states {
			switch {
			case removal != (text == nil):
				continue
			case k.model == "":
				_, err = tx.Exec("DELETE FROM states WHERE stream=?", k.stream)
				if err == nil {
					_, err = tx.Exec("DELETE FROM places WHERE stream=?", k.stream)
				}
			case removal:
				_, err = tx.Exec("DELETE FROM states WHERE stream=? AND model=?", k.stream, k.model)
			default:
				_, err = tx.Exec("INSERT OR REPLACE INTO states VALUES(?,?,?)", k.stream, k.model, text)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// state returns a saved state, or nil.
func (d *database) state(ctx context.Context, name, model string) (text []byte, err error) {
	err = d.db.QueryRowContext(ctx, "SELECT state FROM states WHERE stream=? AND model=?", name, model).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return text, err
}

// removeStep is the largest number of events that one transaction removes.
const removeStep = 5000

// maxJournal is the size of the journal (the -wal file) that a removal shortens even if reads have to end before.
const maxJournal = 16 << 20

// remove removes some of the events before a time, and some of the oldest events beyond a size. remove returns the size
// of the files, the number of removed events, and whether events are left to be removed.
func (d *database) remove(before time.Time, most int64) (size, removed int64, more bool, err error) {
	old, err := d.exec("DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE at<? ORDER BY at LIMIT ?)",
		before.UnixMicro(), removeStep)
	if err != nil {
		return 0, 0, false, err
	}
	var used, rows int64
	if err := d.db.QueryRow("SELECT (page_count-freelist_count)*page_size,"+
		"ifnull((SELECT max(seq) FROM events)-(SELECT min(seq) FROM events)+1,0) FROM pragma_page_count,"+
		"pragma_freelist_count,pragma_page_size").Scan(&used, &rows); err != nil {
		return 0, 0, false, err
	}
	removed, more = old, old == removeStep
	if used > most && !more && rows > 0 {
		// In proportion, and a little more, so that few removals come below the size.
		step := min(removeStep, int64(float64(rows)*float64(used-most)/float64(used))+rows/200+1)
		n, err := d.exec("DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY at,seq LIMIT ?)", step)
		if err != nil {
			return 0, 0, false, err
		}
		removed, more = removed+n, n > 0
	}
	if err := d.shorten(!more); err != nil {
		return 0, 0, false, err
	}
	for _, end := range []string{"", "-wal"} {
		if info, err := os.Stat(d.path + end); err == nil {
			size += info.Size()
		}
	}
	return size, removed, more, nil
}

func (d *database) exec(text string, args ...any) (rows int64, err error) {
	res, err := d.db.Exec(text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// shorten gives free pages back to the disk: with whole, also of the journal.
func (d *database) shorten(whole bool) error {
	rows, err := d.db.Query("PRAGMA incremental_vacuum")
	if err != nil {
		return err
	}
	for rows.Next() { // each row is a page
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || !whole {
		return err
	}
	if info, err := os.Stat(d.path + "-wal"); err == nil && info.Size() <= maxJournal {
		if _, err := d.db.Exec("PRAGMA busy_timeout = 0"); err != nil { // a later removal finds no reads
			return err
		}
		defer func() { _, _ = d.db.Exec("PRAGMA busy_timeout = 5000") }()
	}
	_, err = d.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

// events returns a page.
func (d *database) events(ctx context.Context, q Query) (list []Entry, next string, err error) {
	var where []string
	var args []any
	var at, seq, newestAt, newest, last int64
	add := func(text string, values ...any) {
		where = append(where, text)
		args = append(args, values...)
	}
	for column, value := range map[string]string{"stream": q.Stream, "type": q.Type, "rule": q.Rule, "class": q.Class} {
		if value != "" {
			add(column+"=?", value)
		}
	}
	if !q.From.IsZero() {
		add("at>=?", q.From.UnixMicro())
	}
	if !q.To.IsZero() {
		add("at<?", q.To.UnixMicro())
	}
	if q.After != "" {
		if at, seq, err = parsePlace(q.After); err != nil {
			return nil, "", err
		}
	}
	order := "at DESC,seq DESC"
	switch {
	case q.Oldest: // by number: the times of later events may be earlier, after a step of the clock
		order = "seq"
		err := d.reads.QueryRowContext(ctx, "SELECT at,seq FROM events WHERE seq>? ORDER BY seq DESC LIMIT 1", seq).
			Scan(&newestAt, &newest)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, "", err
		}
		if q.After == "" && q.Stream == "" && !q.From.IsZero() {
			add("seq>=(SELECT min(seq) FROM events WHERE at>=?)", q.From.UnixMicro()) // reads the index only
		}
		if q.After != "" {
			// Not by an index: few events are later, and their order is the order of the numbers.
			for i := range where {
				where[i] = "+" + where[i]
			}
			add("seq>?", seq)
		}
	case q.After != "":
		add("(at,seq)<(?,?)", at, seq)
	}
	text := "SELECT seq,at,model,event FROM events"
	if len(where) > 0 {
		text += " WHERE " + strings.Join(where, " AND ")
	}
	text += fmt.Sprintf(" ORDER BY %s LIMIT %d", order, q.Limit+1)
	rows, err := d.reads.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	list, next = []Entry{}, ""
	place := q.After
	for rows.Next() {
		if len(list) == q.Limit {
			next = place
			break
		}
		e, seq, err := decode(rows)
		if err != nil {
			return nil, "", err
		}
		last = seq
		list, place = append(list, e), fmt.Sprintf("%d-%d", e.Time.UnixMicro(), seq)
	}
	if q.Oldest && next == "" {
		if next = place; newest > last { // none of the events up to the newest is for a later page
			next = fmt.Sprintf("%d-%d", newestAt, newest)
		}
	}
	return list, next, rows.Err()
}

// parsePlace reads a place: the time and the number of an event.
func parsePlace(text string) (at, seq int64, err error) {
	i := strings.LastIndexByte(text, '-')
	if i > 0 {
		at, err = strconv.ParseInt(text[:i], 10, 64)
		if err == nil {
			seq, err = strconv.ParseInt(text[i+1:], 10, 64)
		}
	}
	if i <= 0 || err != nil {
		return 0, 0, stream.Errorf(stream.InvalidArgument, "after", "%.40q is not the next of a page", text)
	}
	return at, seq, nil
}
