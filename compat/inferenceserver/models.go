package inferenceserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/internal/backoff"
	"millrace/internal/newfile"
	"millrace/stream"
)

// model is a posted model, as answered and as stored.
type model struct {
	UID         string `json:"uid"`
	Name        string `json:"human_readable_id"`
	Description string `json:"description"`
	Image       string `json:"container_tag"`
	GPU         bool   `json:"use_gpu"`
	Files       bool   `json:"model_available"` // the model has a zip file for /model
	Volume      string `json:"model_volume_id"` // for clients of InferenceServer, equal to UID
}

// store has the posted models. Their folder below the data folder has UID.json for each model, and UID.zip for a model
// with files. A model exists when its UID.json exists.
type store struct {
	folder    string
	settings  string // of each model, as in --model
	maxModels int    // models
	gpus      bool   // settings name the GPUs
	models    ingest.Definer

	mu    sync.Mutex
	known map[string]*model // by name; models that are being posted, too
	ready map[string]bool   // by name; the posted models
}

// openStore reads the posted models, and makes the models known to the server. Models that cannot be made known are
// logged by failed.
func openStore(e ingest.AdapterEnv, o Options, failed func(name string, err error)) (*store, error) {
	s := &store{folder: filepath.Join(e.Data, name), settings: strings.Join(o.Parameters, ","), maxModels: o.MaxModels,
		models: e.Models, known: map[string]*model{}, ready: map[string]bool{}}
	s.gpus = slices.ContainsFunc(o.Parameters, func(p string) bool { return strings.HasPrefix(p, "container.gpus=") })
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.folder)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		uid, isModel := strings.CutSuffix(entry.Name(), ".json")
		if !isModel || strings.HasPrefix(uid, ".") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(s.folder, entry.Name()))
		m := &model{}
		if err == nil {
			err = json.Unmarshal(text, m)
		}
		if err == nil && (m.UID != uid || m.Name == "" || s.known[m.Name] != nil) {
			err = errors.New("the file is damaged, or its model is in two files")
		}
		if err != nil {
			failed(entry.Name(), err)
			continue
		}
		s.known[m.Name], s.ready[m.Name] = m, true
		if err := s.define(m); err != nil {
			failed(m.Name, err)
		}
	}
	for _, entry := range entries { // of models whose post was interrupted
		uid, isZip := strings.CutSuffix(entry.Name(), ".zip")
		if _, err := os.Stat(s.record(uid)); isZip && errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(s.zip(uid))
		}
	}
	return s, nil
}

func (s *store) record(uid string) string { return filepath.Join(s.folder, uid+".json") }
func (s *store) zip(uid string) string    { return filepath.Join(s.folder, uid+".zip") }

// define makes a model known to the server.
func (s *store) define(m *model) error {
	settings := []string{"container.zip=true", "limits.start=10m"}
	if m.Files {
		settings = append(settings, fmt.Sprintf("container.model=%q", s.zip(m.UID)))
	}
	if m.GPU && !s.gpus {
		settings = append(settings, "container.gpus=all")
	}
	for part := range strings.SplitSeq(s.settings, ",") {
		if part != "" && (m.GPU || !strings.HasPrefix(part, "container.gpus=")) {
			settings = append(settings, part)
		}
	}
	return s.models.Define(m.Name, "container://"+m.Image, strings.Join(settings, ","))
}

// reserve makes a new model known to the server. settle ends the post: without an error of the post, the model stays.
func (s *store) reserve(m *model) (settle func(err error) error, err error) {
	m.UID = strings.ToLower(rand.Text())
	m.Volume = m.UID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[m.Name] != nil {
		return nil, stream.Errorf(stream.Conflict, "human_readable_id", "there is a model %.128q", m.Name)
	}
	if len(s.known) >= s.maxModels {
		return nil, stream.Errorf(stream.Overloaded, name+".max_models",
			"%d models were posted, as many as allowed: delete a model", len(s.known))
	}
	if err := s.define(m); err != nil {
		return nil, ofPost(err)
	}
	s.known[m.Name] = m
	return func(err error) error {
		if err == nil {
			err = s.write(m)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.ready[m.Name] = true
			return nil
		}
		return errors.Join(err, s.forget(m))
	}, nil
}

// write writes the record of a model. The model then exists after a restart.
func (s *store) write(m *model) error {
	return newfile.Write(s.record(m.UID), func(w io.Writer) error { return json.NewEncoder(w).Encode(m) })
}

// forget removes a model. s.mu is held.
func (s *store) forget(m *model) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := s.models.Forget(ctx, m.Name)
	delete(s.known, m.Name)
	delete(s.ready, m.Name)
	for _, file := range []string{s.record(m.UID), s.zip(m.UID)} {
		if e := os.Remove(file); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// remove deletes a posted model. Errors: NotFound.
func (s *store) remove(name string) (model, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready[name] {
		return model{}, stream.Errorf(stream.NotFound, "human_readable_id", "no model %.128q was posted", name)
	}
	m := *s.known[name]
	return m, s.forget(&m)
}

// list returns the posted models by name.
func (s *store) list() []model {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []model{}
	for name := range s.ready {
		all = append(all, *s.known[name])
	}
	slices.SortFunc(all, func(a, b model) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// load loads the stored models, and tries again the models that cannot be loaded, until ctx ends.
func (s *store) load(ctx context.Context, models ingest.Repository, failed func(name string, err error)) {
	left := s.list()
	waits := backoff.Backoff{Min: time.Second, Max: 5 * time.Minute}
	for {
		left = slices.DeleteFunc(left, func(m model) bool {
			s.mu.Lock()
			there := s.ready[m.Name]
			s.mu.Unlock()
			if !there || ctx.Err() != nil {
				return true
			}
			_, err := models.Load(ctx, m.Name, ingest.Load{})
			if err != nil && ctx.Err() == nil {
				failed(m.Name, err)
			}
			return err == nil
		})
		if len(left) == 0 {
			return
		}
		timer := time.NewTimer(waits.Next(1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// ofPost names the option of a post in an error about a setting of the model.
func ofPost(err error) error {
	var e *stream.Error
	if !errors.As(err, &e) {
		return err
	}
	option := map[string]string{"name": "human_readable_id", "source": "container_tag",
		"container.image": "container_tag", "container.model": field}[e.Field]
	if option == "" {
		return err
	}
	return stream.Errorf(e.Code, option, "%w", err)
}
