package setting

import "errors"

// Join returns errors as one error: nil for none, a single error unchanged, or all errors, each on its own line.
// Equal texts appear once.
func Join(errs ...error) error {
	var all []error
	said := map[string]bool{}
	for _, err := range errs {
		for _, err := range Split(err) {
			if text := err.Error(); !said[text] {
				all, said[text] = append(all, err), true
			}
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// Split returns the errors joined by Join.
func Split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, Split(err)...)
	}
	return all
}
