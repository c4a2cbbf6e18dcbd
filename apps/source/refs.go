package source

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"millrace/internal/setting"
	"millrace/internal/sshclient"
)

// references are the references of a repository.
type references struct {
	hashes   map[string]plumbing.Hash // by full names; of an annotated tag, the tag
	peeled   map[string]plumbing.Hash // commits of annotated tags, by full names
	head     string                   // full name of the default branch, "" for none or unknown
	headHash plumbing.Hash            // zero for none

	find func(prefix string) ([]plumbing.Hash, error) // finds commits by their first digits; nil = cannot
}

// target is a commit to fetch.
type target struct {
	name     string        // full name of the reference, "" for a commit
	hash     plumbing.Hash // commit or annotated tag
	reported bool          // the hash is that of a reference
}

const (
	heads   = "refs/heads/"
	tags    = "refs/tags/"
	fullSHA = 40
)

// resolve finds the commit that ref names.
func (r *references) resolve(ref string) (target, error) {
	if ref == "" {
		switch {
		case len(r.hashes) == 0 && r.headHash.IsZero():
			return target{}, errors.New("the repository is empty: it has no commit")
		case r.headHash.IsZero():
			return target{}, fmt.Errorf("the repository has no default branch: add a branch, as in REPO@BRANCH%s",
				r.list(""))
		}
		return target{name: r.head, hash: r.headHash, reported: true}, nil
	}
	if strings.HasPrefix(ref, "refs/") {
		if h, ok := r.hashes[ref]; ok {
			return target{name: ref, hash: h, reported: true}, nil
		}
		return target{}, fmt.Errorf("the repository has no %s%s", ref, r.list(ref))
	}
	branch, isBranch := r.hashes[heads+ref]
	tag, isTag := r.hashes[tags+ref]
	switch {
	case isBranch && isTag:
		return target{}, fmt.Errorf("the repository has a branch and a tag with the name %s: write REPO@refs/heads/%s "+
			"for the branch, or REPO@refs/tags/%s for the tag", ref, ref, ref)
	case isBranch:
		return target{name: heads + ref, hash: branch, reported: true}, nil
	case isTag:
		return target{name: tags + ref, hash: tag, reported: true}, nil
	case len(ref) == fullSHA && plumbing.IsHash(ref):
		h := plumbing.NewHash(ref)
		for name, tip := range r.hashes {
			if tip == h || r.peeled[name] == h {
				return target{hash: tip, reported: true}, nil
			}
		}
		return target{hash: h}, nil
	case isAbbreviated(ref):
		return r.abbreviated(strings.ToLower(ref))
	}
	return target{}, fmt.Errorf("the repository has no branch and no tag %s%s", ref, r.list(ref))
}

func isAbbreviated(ref string) bool {
	return len(ref) >= 4 && len(ref) < fullSHA && strings.Trim(strings.ToLower(ref), "0123456789abcdef") == ""
}

// abbreviated finds a commit by its first digits.
func (r *references) abbreviated(prefix string) (target, error) {
	found := map[plumbing.Hash]target{}
	for name, tip := range r.hashes {
		commit := tip
		if h, ok := r.peeled[name]; ok {
			commit = h
		}
		if strings.HasPrefix(commit.String(), prefix) {
			found[commit] = target{hash: tip, reported: true}
		}
	}
	if r.find != nil {
		commits, err := r.find(prefix)
		if err != nil {
			return target{}, err
		}
		for _, h := range commits {
			if _, ok := found[h]; !ok {
				found[h] = target{hash: h}
			}
		}
	}
	switch {
	case len(found) > 1:
		return target{}, fmt.Errorf("%d commits begin with %s: write all 40 digits", len(found), prefix)
	case len(found) == 1:
		for _, t := range found {
			return t, nil
		}
	case r.find == nil:
		return target{}, fmt.Errorf("the repository has no branch and no tag %s, and no branch or tag whose last "+
			"commit begins with %s: write all 40 digits of an earlier commit%s", prefix, prefix, r.list(prefix))
	}
	return target{}, fmt.Errorf("the repository has no branch, no tag and no commit %s%s", prefix, r.list(prefix))
}

// maxListed is the greatest number of names in a message.
const maxListed = 10

// list returns a suggestion or the names of branches and tags, for the end of an error about the name ref.
func (r *references) list(ref string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.hashes)) {
		for _, prefix := range []string{heads, tags} {
			if short, ok := strings.CutPrefix(name, prefix); ok {
				names = append(names, sshclient.Printable(short))
			}
		}
	}
	if hint := setting.Suggest(ref, names); ref != "" && hint != "" {
		return hint
	}
	if len(names) == 0 {
		return ""
	}
	more := ""
	if len(names) > maxListed {
		more = fmt.Sprintf(" and %d more", len(names)-maxListed)
		names = names[:maxListed]
	}
	return ": there are " + strings.Join(names, ", ") + more
}
