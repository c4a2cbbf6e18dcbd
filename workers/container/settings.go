package container

import (
	"strings"
	"time"

	"millrace/stream"
	"millrace/workers"
)

func init() {
	kind := workers.Kind{
		Name:     "container",
		Doc:      "a container image that takes files of a task, or serves the Open Inference Protocol",
		New:      func() workers.Worker { return &worker{} },
		Settings: func() any { return new(settings) },
		Loads:    func(source string) bool { return strings.HasPrefix(source, scheme) },
		HostParams: []string{"container.image", "container.pull", "container.model", "container.gpus",
			"container.memory", "container.cpus", "container.pids", "container.tmp", "container.time",
			"container.grace", "container.input", "container.output", "container.files", "container.zip",
			"container.serve.port", "container.serve.protocol", "container.serve.model", "container.serve.health",
			"container.serve.unready", "container.serve.max_message"},
	}
	kind.Variant = func(of any) workers.Kind {
		k := kind
		if of.(*settings).Container.Serve.Port != 0 {
			k.New = func() workers.Worker { return &server{} }
		}
		return k
	}
	workers.Register(kind)
}

// scheme begins a source that is an image.
const scheme = "container://"

type settings struct {
	Container parameters `yaml:"container"`
}

// parameters are the settings of one model.
type parameters struct {
	Image  string `yaml:"image" unset:"the source, as in container://IMAGE" help:"name of the image; one of containers.images"`
	Pull   string `yaml:"pull" default:"never" words:"never missing always" advanced:"yes" help:"when a load gets the image from its registry; missing = when the engine has no image of the name"`
	Model  string `yaml:"model" path:"file" unset:"none" example:"weights" advanced:"yes" help:"a folder, or a zip file with the files of a folder, that the container reads as /model"`
	GPUs   string `yaml:"gpus" unset:"none" example:"all" help:"GPUs of the container: all, a number, or ids with commas"`
	Memory int64  `yaml:"memory" default:"1GiB" min:"16MiB" unit:"bytes" help:"most memory of a container, the files in /tmp included"`

	CPUs  float64        `yaml:"cpus" default:"1" above:"0" max:"1024" advanced:"yes" help:"most processors of a container"`
	PIDs  int64          `yaml:"pids" default:"128" min:"1" max:"1048576" advanced:"yes" help:"most processes and threads of a container"`
	Tmp   int64          `yaml:"tmp" default:"64MiB" min:"1MiB" unit:"bytes" advanced:"yes" help:"size of /tmp, the only writable folder besides /output"`
	Time  time.Duration  `yaml:"time" default:"1h" min:"100ms" max:"720h" advanced:"yes" help:"longest run of a container"`
	Grace *time.Duration `yaml:"grace" default:"10s" max:"10m" advanced:"yes" help:"time from SIGTERM to SIGKILL for a container that must end"`

	Input  int64 `yaml:"input" default:"4GiB" min:"1" unit:"bytes" advanced:"yes" help:"most bytes of the extracted files of a zip, of container.model too"`
	Output int64 `yaml:"output" default:"1GiB" min:"1" unit:"bytes" advanced:"yes" help:"most bytes in /output"`
	Files  int   `yaml:"files" default:"10000" min:"1" max:"65536" advanced:"yes" help:"most files and folders of a zip, and in /output"`
	Zip    bool  `yaml:"zip" advanced:"yes" help:"the result is a zip file also when /output has one file"`

	Serve serve `yaml:"serve"`
}

// serve are the settings of an image that serves the Open Inference Protocol.
type serve struct {
	Port       int           `yaml:"port" min:"1" max:"65535" unset:"the image runs tasks" example:"8000" help:"port in the container of a server of the Open Inference Protocol: requests go to the server, in place of tasks"`
	Protocol   string        `yaml:"protocol" default:"http" words:"http grpc" advanced:"yes" help:"protocol at the port"`
	Model      string        `yaml:"model" unset:"the same name" advanced:"yes" help:"name of the model at the server in the container"`
	Health     time.Duration `yaml:"health" default:"1s" min:"10ms" max:"1h" advanced:"yes" help:"interval of health checks of the server in the container"`
	Unready    time.Duration `yaml:"unready" default:"30s" min:"10ms" max:"1h" advanced:"yes" help:"a container whose server is not ready for so long is replaced"`
	MaxMessage int64         `yaml:"max_message" default:"64MiB" min:"4KiB" max:"2GiB" unit:"bytes" advanced:"yes" help:"largest request to the server in the container, and largest answer; both are taken from memory.budget"`
}

// Validate implements the validation of workers.Kind.
func (s *settings) Validate() error {
	if v := &s.Container.Serve; v.Port == 0 && v.Model != "" {
		return stream.Errorf(stream.InvalidArgument, "container.serve.port",
			"is missing beside container.serve.model: name the port of the server in the container")
	}
	return nil
}

// image returns the name of the image.
func (p *parameters) image(source string) (string, error) {
	name, is := strings.CutPrefix(source, scheme)
	switch {
	case source != "" && !is:
		return "", stream.Errorf(stream.InvalidArgument, "source", "is %.100q, and a container's is %sIMAGE, or none "+
			"beside container.image", source, scheme)
	case p.Image != "" && is && p.Image != name:
		return "", stream.Errorf(stream.InvalidArgument, "container.image",
			"is %s, and the source is %s: leave one of them out", p.Image, source)
	case p.Image != "":
		return p.Image, nil
	case is && name != "":
		return name, nil
	}
	return "", stream.Errorf(stream.InvalidArgument, "container.image",
		"is missing: name the image here, or as the source, %sIMAGE", scheme)
}
