package workers

import (
	"fmt"
	"strings"
)

// Register adds a kind. Register panics when the name is registered already, or when a setting of the kind has the
// name of a setting of every model. Call Register from init.
func Register(k Kind) {
	model := new(Config).Table()
	model.Add("", new(loadOptions))
	for _, f := range k.Table().Fields() {
		own := f.Path
		if _, taken := model.FindRequest(own); !taken {
			own, _, _ = strings.Cut(own, ".")
		}
		if _, taken := model.FindRequest(own); taken || model.IsSection(own) {
			panic(fmt.Sprintf("workers: %s of kind %q has the name of the setting %s of every model: call it %s_%s",
				f.Path, k.Name, own, k.Name, f.Path))
		}
	}
	kinds.Lock()
	defer kinds.Unlock()
	if _, taken := kinds.m[k.Name]; taken || k.New == nil {
		panic(fmt.Sprintf("workers: kind %q registered twice or without New", k.Name))
	}
	kinds.m[k.Name] = k
}
