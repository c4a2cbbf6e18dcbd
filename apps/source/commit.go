package source

import (
	"time"

	"github.com/go-git/go-git/v5"
)

// CommitTime returns the time of the commit that is checked out in the clone dir.
func CommitTime(dir string) (time.Time, error) {
	repo, err := git.PlainOpen(dir)
	if err != nil {
		return time.Time{}, err
	}
	at, err := repo.Head()
	if err != nil {
		return time.Time{}, err
	}
	c, err := repo.CommitObject(at.Hash())
	if err != nil {
		return time.Time{}, err
	}
	return c.Committer.When.UTC(), nil
}
