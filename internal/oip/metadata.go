package oip

// ServerMetadata is the reply to GET /v2.
type ServerMetadata struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

// TensorMetadata describes an input or output of a model; a dimension of -1 may have any
// size.
type TensorMetadata struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Shape    []int  `json:"shape"`
}

// ModelMetadata is the reply to GET /v2/models/NAME.
type ModelMetadata struct {
	Name     string           `json:"name"`
	Versions []string         `json:"versions,omitempty"`
	Platform string           `json:"platform"`
	Inputs   []TensorMetadata `json:"inputs"`
	Outputs  []TensorMetadata `json:"outputs"`
}

// IndexRow is a model of the repository index. State is a word such as READY or UNAVAILABLE, and Reason the reason
// for the state.
type IndexRow struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
}

// AppendServerMetadata appends m as JSON.
func AppendServerMetadata(dst []byte, m *ServerMetadata) []byte {
	dst = append(dst, `{"name":`...)
	dst = AppendString(dst, m.Name)
	dst = append(dst, `,"version":`...)
	dst = AppendString(dst, m.Version)
	dst = append(dst, `,"extensions":`...)
	return append(appendStrings(dst, m.Extensions), '}')
}

// AppendModelMetadata appends m as JSON.
func AppendModelMetadata(dst []byte, m *ModelMetadata) []byte {
	dst = append(dst, `{"name":`...)
	dst = AppendString(dst, m.Name)
	if len(m.Versions) > 0 {
		dst = append(dst, `,"versions":`...)
		dst = appendStrings(dst, m.Versions)
	}
	dst = append(dst, `,"platform":`...)
	dst = AppendString(dst, m.Platform)
	dst = append(dst, `,"inputs":`...)
	dst = appendTensorMetadata(dst, m.Inputs)
	dst = append(dst, `,"outputs":`...)
	return append(appendTensorMetadata(dst, m.Outputs), '}')
}

// AppendIndex appends the rows of a repository index as a JSON array.
func AppendIndex(dst []byte, rows []IndexRow) []byte {
	dst = append(dst, '[')
	for i := range rows {
		if i > 0 {
			dst = append(dst, ',')
		}
		r := &rows[i]
		dst = append(dst, `{"name":`...)
		dst = AppendString(dst, r.Name)
		dst = append(dst, `,"version":`...)
		dst = AppendString(dst, r.Version)
		dst = append(dst, `,"state":`...)
		dst = AppendString(dst, r.State)
		dst = append(dst, `,"reason":`...)
		dst = AppendString(dst, r.Reason)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func appendStrings(dst []byte, ss []string) []byte {
	dst = append(dst, '[')
	for i, s := range ss {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, s)
	}
	return append(dst, ']')
}

func appendTensorMetadata(dst []byte, ts []TensorMetadata) []byte {
	dst = append(dst, '[')
	for i := range ts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = AppendString(dst, ts[i].Name)
		dst = append(dst, `,"datatype":`...)
		dst = AppendString(dst, ts[i].Datatype)
		dst = append(dst, `,"shape":`...)
		dst = append(appendShape(dst, ts[i].Shape), '}')
	}
	return append(dst, ']')
}
