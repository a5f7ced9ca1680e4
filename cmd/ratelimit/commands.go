package main

// commands returns all commands, in the order in which the help of the program lists them.
func commands() []command {
	return []command{
		validateCommand,
		simulateCommand,
		replayCommand,
		suggestCommand,
		explainCommand,
		proveCommand,
		topCommand,
		resetCommand,
		blockCommand,
		exemptCommand,
		rateCommand,
		pardonCommand,
		liftCommand,
		overridesCommand,
		versionCommand,
		completionCommand(),
	}
}
