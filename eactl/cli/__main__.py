from eactl.cli import main

main()
