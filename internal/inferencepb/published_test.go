package inferencepb_test

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"millrace/internal/inferencepb"
)

// published lists each method, field and enumeration value of the protocol published to clients, with number and
// type.
//
//go:embed testdata/published.txt
var published string

// The messages have the names, numbers and types of the published protocol: another number
// would be another field to existing clients.
func TestDescriptorsAreThePublishedOnes(t *testing.T) {
	var have []string
	for _, f := range []protoreflect.FileDescriptor{inferencepb.File_grpc_service_proto,
		inferencepb.File_model_config_proto} {
		if f.Package() != "inference" {
			t.Errorf("%s has package %s", f.Path(), f.Package())
		}
		for s := range all(f.Services()) {
			for m := range all(s.Methods()) {
				have = append(have, fmt.Sprintf("%s/%s %s%s -> %s%s", s.Name(), m.Name(),
					stream(m.IsStreamingClient()), name(m.Input()), stream(m.IsStreamingServer()), name(m.Output())))
			}
		}
		have = append(enums(f.Enums(), have), messages(f.Messages(), nil)...)
	}
	want := strings.Split(strings.TrimSpace(published), "\n")
	slices.Sort(have)
	slices.Sort(want)
	for _, line := range want {
		if !slices.Contains(have, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range have {
		if !slices.Contains(want, line) {
			t.Errorf("not in the protocol: %s", line)
		}
	}
}

func stream(is bool) string {
	if is {
		return "stream "
	}
	return ""
}

// name is the full name without the package.
func name(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), "inference.")
}

// list is the common interface of protoreflect's lists of descriptors.
type list[T any] interface {
	Len() int
	Get(int) T
}

func all[T any](l list[T]) func(func(T) bool) {
	return func(yield func(T) bool) {
		for i := range l.Len() {
			if !yield(l.Get(i)) {
				return
			}
		}
	}
}

func enums(of protoreflect.EnumDescriptors, to []string) []string {
	for e := range all(of) {
		for v := range all(e.Values()) {
			to = append(to, fmt.Sprintf("%s.%s=%d", name(e), v.Name(), v.Number()))
		}
	}
	return to
}

func messages(of protoreflect.MessageDescriptors, to []string) []string {
	for m := range all(of) {
		if m.Fields().Len() == 0 {
			to = append(to, name(m))
		}
		for f := range all(m.Fields()) {
			line := fmt.Sprintf("%s.%s=%d ", name(m), f.Name(), f.Number())
			if f.Cardinality() == protoreflect.Repeated {
				line += "repeated "
			}
			switch f.Kind() {
			case protoreflect.MessageKind:
				line += name(f.Message())
			case protoreflect.EnumKind:
				line += name(f.Enum())
			default:
				line += f.Kind().String()
			}
			if o := f.ContainingOneof(); o != nil {
				line += " oneof " + string(o.Name())
			}
			to = append(to, line)
		}
		to = messages(m.Messages(), enums(m.Enums(), to))
	}
	return to
}
