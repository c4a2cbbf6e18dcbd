package workers

// Ensemble is a graph in the form of an ensemble of the Open Inference Protocol: steps without crops and conditions.
type Ensemble struct {
	Steps   []EnsembleStep
	Outputs []string // names of the tensors that the ensemble answers with
}

// EnsembleStep runs a model. Input and Output map the tensors of the model to tensors of the ensemble.
type EnsembleStep struct {
	Model   string
	Version string // "" = the latest
	Input   map[string]string
	Output  map[string]string
}
