package workers

import "slices"

// maxFailures is the largest number of failed loads that are remembered.
const maxFailures = 128

// failures are the last failed load of each model and version, the latest last.
type failures []failure

type failure struct {
	modelVersion
	reason string
}

// add remembers a failed load in place of an earlier one of the same model and version.
func (f *failures) add(of modelVersion, reason string) {
	const most = 1024
	if len(reason) > most {
		reason = reason[:most] + "..."
	}
	f.forget(of.model, of.version)
	if len(*f) >= maxFailures {
		*f = slices.Delete(*f, 0, 1)
	}
	*f = append(*f, failure{of, reason})
}

// forget removes the failures of a model, or of only the given version.
func (f *failures) forget(model, version string) {
	*f = slices.DeleteFunc(*f, func(x failure) bool {
		return x.model == model && (version == "" || x.version == version)
	})
}

// reason returns why a model and version could not be loaded, or "".
func (f failures) reason(model, version string) string {
	for _, x := range f {
		if x.model == model && x.version == version {
			return x.reason
		}
	}
	return ""
}
