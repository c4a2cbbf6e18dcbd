package child

import "os"

// pipes holds both ends of a child's standard streams between opening them and starting the child.
type pipes struct {
	in, out, err                *os.File // this process's ends; in is nil when the child has no input pipe
	childIn, childOut, childErr *os.File
	callersIn                   bool // the caller owns childIn
}

func openPipes(spec Spec) (p pipes, err error) {
	defer func() {
		if err != nil {
			p.closeChildEnds()
			p.closeParentEnds()
		}
	}()
	switch {
	case spec.StdinFile != nil:
		p.childIn, p.callersIn = spec.StdinFile, true
	case spec.Stdin:
		if p.childIn, p.in, err = os.Pipe(); err != nil {
			return p, err
		}
	default:
		if p.childIn, err = os.Open(os.DevNull); err != nil {
			return p, err
		}
	}
	if p.out, p.childOut, err = os.Pipe(); err != nil {
		return p, err
	}
	if p.err, p.childErr, err = os.Pipe(); err != nil {
		return p, err
	}
	if spec.PipeSize > 0 {
		growPipe(p.out, spec.PipeSize)
	}
	return p, nil
}

// GrowPipe asks for a larger pipe for standard output, as Spec.PipeSize.
func (p *Process) GrowPipe(bytes int) { growPipe(p.Stdout, min(bytes, MaxPipeSize)) }

func (p *pipes) closeChildEnds() {
	if p.callersIn {
		p.childIn = nil
	}
	closeAll(p.childIn, p.childOut, p.childErr)
}

func (p *pipes) closeParentEnds() { closeAll(p.in, p.out, p.err) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
