package server

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"millrace/config"
	"millrace/internal/child"
	"millrace/internal/confine"
	"millrace/internal/secret"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/onnx"
)

// ConfinePrograms sets Programs of o from the settings confine, and logs missing features of this machine.
func ConfinePrograms(cfg *Config, o *workers.ManagerOptions) (err error) {
	o.Programs, err = confinement(cfg, child.SandboxError(), o.Log)
	return err
}

// confinement returns the confinement of programs with models' code and of exec sources, from the settings confine
// and lacks, the features that the machine does not have; nil = no confinement. confinement logs lacks.
func confinement(cfg *Config, lacks error, log *slog.Logger) (*confine.Programs, error) {
	switch set := cfg.Confine.Programs; {
	case set == config.SandboxOff || set == "":
		return nil, nil
	case lacks != nil && set == config.SandboxRequire:
		return nil, stream.Errorf(stream.Unavailable, "confine.programs",
			"is require, and programs cannot be confined here: %w", lacks)
	case lacks != nil:
		log.Warn("programs run the code of models, and are not confined: programs can read files and use the network",
			"setting", "confine.programs", "error", lacks)
		return nil, nil
	}
	p := &confine.Programs{Network: cfg.Confine.Network, Read: cfg.Confine.Read, Write: cfg.Confine.Write,
		Files: uint64(cfg.Confine.Files), Private: privateFiles(cfg)}
	if err := p.Validate(); err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "confine.write", "%w", err)
	}
	if lack := confine.UnsupportedRestrictions(); lack != "" {
		log.Warn(lack, "setting", "confine.programs")
	}
	return p, nil
}

// isolation returns how ONNX models run in child processes.
func isolation(cfg *Config) onnx.Isolation {
	return onnx.Isolation{Program: cfg.ONNX.Program, All: cfg.ONNX.Isolate, Private: privateFiles(cfg)}
}

// IsolateModels sets how ONNX models run in child processes, as New does.
func IsolateModels(cfg *Config) { onnx.SetIsolation(isolation(cfg)) }

// privateFiles returns the files and folders with the server's state, keys, passwords and other secrets.
func privateFiles(cfg *Config) []string {
	files := []string{
		cfg.File, secret.File(cfg.APIKey), cfg.Auth.Keys, cfg.Auth.Users, cfg.Auth.Module, cfg.TLS.Key, cfg.Audit,
		cfg.StreamsFile,
	}
	if own, err := SelfSignedFile(); err == nil {
		files = append(files, filepath.Dir(own))
	}
	if dir, err := acmeCache(cfg.TLS.ACME); err == nil {
		files = append(files, dir)
	}
	return slices.DeleteFunc(files, func(f string) bool { return f == "" })
}

// sandbox reports whether the programs of FFmpeg are confined, from the setting and lacks, the features that the
// machine does not have. sandbox logs lacks.
func sandbox(setting string, lacks error, log *slog.Logger) (bool, error) {
	switch {
	case setting == config.SandboxOff:
		return false, nil
	case lacks != nil && setting == config.SandboxRequire:
		return false, stream.Errorf(stream.Unavailable, "sandbox",
			"is require, and ffmpeg cannot be confined here: %w", lacks)
	case lacks != nil:
		log.Warn("ffmpeg decodes data of clients, and is not confined: ffmpeg can read files and use the network",
			"setting", "sandbox", "error", lacks)
		return false, nil
	}
	return true, nil
}

// sandboxText says in the log whether programs are confined.
func sandboxText(confined bool) string {
	if !confined {
		return "none"
	}
	return fmt.Sprintf("landlock %d", child.LandlockABI())
}
