package stream

import "errors"

// Invalid returns what is wrong with settings as errors of code InvalidArgument about
// their fields: each error that has a method Setting, which returns the path of the
// setting and what is wrong with it, alone or joined. Other errors stay as they are.
func Invalid(err error) error {
	var one interface {
		Setting() (path, message string)
	}
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, err := range list.Unwrap() {
			errs = append(errs, Invalid(err))
		}
		if len(errs) == 1 {
			return errs[0]
		}
		return errors.Join(errs...)
	}
	if !errors.As(err, &one) {
		return err
	}
	path, message := one.Setting()
	return &Error{Code: InvalidArgument, Field: path, Msg: message}
}
